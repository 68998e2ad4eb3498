//! Attach overdue: a process that was started and does not link in time, or that lost its link and
//! does not come back. A lost link alone is no verdict: the daemon itself may have restarted.
use super::{ByRole, Fall, Finding, Rule, Setting, Sight, Verdict, Watch, settings};
use crate::core::FaultKind;
use crate::core::roster::instance::{Instance, Life};
use crate::ids::Role;
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
    event: None,
    watch: Some(Watch {
        due: |_, i| must_link(i),
        fall: Fall::Judge(is_late),
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
    event: None,
    watch: Some(Watch {
        due: |_, i| must_link_again(i),
        fall: Fall::Judge(stays_away),
        is_learned: false,
    }),
};

settings! {
    /// What a job file may set of it.
    pub struct LinkLost {
        /// How long a link may be broken.
        pub window: ByRole<Duration> = Setting::seconds("window_s", 5.0),
    }
}

/// When a process that was started must have linked.
fn must_link(i: &Instance) -> Option<Time> {
    let (Life::Spawning { until } | Life::Starting { until }) = i.life() else {
        return None;
    };
    i.condemned().is_none().then_some(until)
}

/// When one that lost its link must be back.
fn must_link_again(i: &Instance) -> Option<Time> {
    let Life::Unlinked { until } = i.life() else {
        return None;
    };
    i.condemned().is_none().then_some(until)
}

fn is_late(_: &Sight<'_>, i: &Instance) -> Option<Finding> {
    let reason = "it was started and did not link in time";
    Some(Finding::Failed(Verdict::new(i.id(), &RULE, reason)))
}

fn stays_away(_: &Sight<'_>, i: &Instance) -> Option<Finding> {
    let reason = "its link broke and did not come back";
    Some(Finding::Failed(Verdict::new(i.id(), &LINK_LOST, reason)))
}
