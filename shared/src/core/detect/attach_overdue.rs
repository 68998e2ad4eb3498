//! Attach overdue: a process that was started and does not link in time, or that lost its link and
//! does not come back. A lost link alone is no verdict: the daemon itself may have restarted.
use super::{Rule, RuleId, Setting, Verdict};
use crate::core::instance::{Instance, Life};
use crate::core::{Core, FaultKind};
use crate::ids::{InstanceId, Role};
use crate::phase::Phase;

/// A started process that does not link in time.
pub const RULE: Rule = Rule {
    id: RuleId::AttachOverdue,
    name: "attach overdue",
    roles: &Role::ALL,
    phases: &[Phase::Init],
    signal: "a started process has not linked",
    action: "restart",
    kind: Some(FaultKind::Start),
    settings: &[Setting::seconds("window_s", 60.0)],
};

/// A link that broke and does not come back.
pub const LINK_LOST: Rule = Rule {
    id: RuleId::LinkLost,
    name: "link lost",
    roles: &Role::ALL,
    phases: &[],
    signal: "the link broke and did not come back, the process alive",
    action: "restart",
    kind: Some(FaultKind::Exit),
    settings: &[Setting::seconds("window_s", 5.0)],
};

impl Core {
    pub(super) fn check_overdue(&mut self, fallen: &[InstanceId]) {
        let now = self.now;
        let due = |i: &&Instance| match i.life {
            Life::Spawning { until } | Life::Starting { until } | Life::Unlinked { until } => {
                until <= now && i.condemned.is_none()
            }
            Life::None | Life::Waiting { .. } | Life::Homeless | Life::Attached => false,
        };
        for &who in fallen {
            let Some(life) = self.s.instances.get(who).filter(due).map(|i| i.life) else {
                continue;
            };
            let (rule, reason) = match life {
                Life::Unlinked { .. } => (RuleId::LinkLost, "its link broke and did not come back"),
                _ => (
                    RuleId::AttachOverdue,
                    "it was started and did not link in time",
                ),
            };
            self.fault(Verdict::new(who, rule, reason));
            if self.s.outcome().is_some() {
                return;
            }
        }
    }
}
