//! Attach overdue: a process that was started and does not link in time, or that lost its link and
//! does not come back. A lost link alone is no verdict: the daemon itself may have restarted.
use super::Verdict;
use crate::core::Core;
use crate::core::instance::{Instance, Life};

impl Core {
    pub(super) fn check_overdue(&mut self) {
        let now = self.now;
        let due = |i: &&Instance| match i.life {
            Life::Spawning { until } | Life::Starting { until } | Life::Unlinked { until } => {
                until <= now && i.condemned.is_none()
            }
            Life::None | Life::Waiting { .. } | Life::Attached => false,
        };
        loop {
            let found = self.s.instances.iter().find(due).map(|i| (i.id, i.life));
            let Some((who, life)) = found else { return };
            let (rule, reason) = match life {
                Life::Unlinked { .. } => ("link lost", "its link broke and did not come back"),
                _ => ("attach overdue", "it was started and did not link in time"),
            };
            let (reason, startup_error) = (reason.to_owned(), None);
            self.fault(Verdict {
                who,
                rule,
                reason,
                startup_error,
                ended: false,
                hangs: false,
            });
            if self.s.outcome().is_some() {
                return;
            }
        }
    }
}
