//! Attach overdue: a process that was started and does not link in time, or that lost its link and
//! does not come back. A lost link alone is no verdict: the daemon itself may have restarted.
use super::{ByRole, Rule, Setting, Verdict, Watch, settings};
use crate::core::instance::{Instance, Life};
use crate::core::{Core, FaultKind};
use crate::ids::{InstanceId, Role};
use crate::phase::Phase;
use crate::time::Time;
use std::time::Duration;

/// A started process that does not link in time.
pub const RULE: Rule = Rule {
    name: "attach overdue",
    roles: &Role::ALL,
    phases: &[Phase::Init],
    signal: "a started process has not linked",
    action: "restart",
    kind: Some(FaultKind::Start),
    // It looks for lost links too: what was started and what lost its link is one state of a life.
    watch: Some(Watch {
        due,
        check: Core::check_overdue,
        is_learned: false,
    }),
};

settings! {
    /// What a job file may set of it.
    pub struct AttachOverdue {
        /// How long it may take to link.
        pub window: ByRole<Duration> = Setting::seconds("window_s", 60.0),
    }
}

/// A link that broke and does not come back.
pub const LINK_LOST: Rule = Rule {
    name: "link lost",
    roles: &Role::ALL,
    phases: &[],
    signal: "the link broke and did not come back, the process alive",
    action: "restart",
    kind: Some(FaultKind::Exit),
    watch: None,
};

settings! {
    /// What a job file may set of it.
    pub struct LinkLost {
        /// How long a link may be broken.
        pub window: ByRole<Duration> = Setting::seconds("window_s", 5.0),
    }
}

/// When it must have linked.
pub fn due(_: &Core, i: &Instance) -> Option<Time> {
    let until = match i.life {
        Life::Spawning { until } | Life::Starting { until } | Life::Unlinked { until } => until,
        Life::None | Life::Waiting { .. } | Life::Homeless | Life::Attached => return None,
    };
    i.condemned.is_none().then_some(until)
}

impl Core {
    pub(super) fn check_overdue(&mut self, fallen: &[InstanceId]) {
        let now = self.now;
        for &who in fallen {
            let overdue = |i: &&Instance| due(self, i).is_some_and(|until| until <= now);
            let Some(life) = self.s.instances.get(who).filter(overdue).map(|i| i.life) else {
                continue;
            };
            let (rule, reason) = match life {
                Life::Unlinked { .. } => (&LINK_LOST, "its link broke and did not come back"),
                _ => (&RULE, "it was started and did not link in time"),
            };
            self.fault(Verdict::new(who, rule, reason));
            if self.s.outcome().is_some() {
                return;
            }
        }
    }
}
