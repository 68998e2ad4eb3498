//! Context switch: a hybrid engine that was told to pause or to go on, and neither does it nor says
//! why not, keeps a slot from whoever it is meant for.
use super::{ByRole, Fall, Rule, Setting, Sight, Verdict, Watch, settings};
use crate::core::roster::instance::Instance;
use crate::core::{Core, FaultKind};
use crate::ids::{InstanceId, Role};
use crate::time::Time;
use std::time::Duration;

/// An engine that does not change its context.
pub const RULE: Rule = Rule {
    name: "context switch",
    roles: &[Role::Hybrid],
    phases: &[],
    signal: "told to pause or to go on, it does not answer, or refuses",
    action: "evidence, restart; the slot is its rank's meanwhile",
    kind: Some(FaultKind::Hang),
    event: None,
    watch: Some(Watch {
        due,
        fall: Fall::Act(Core::check_context_switches),
        is_learned: false,
    }),
};

settings! {
    /// What a job file may set of it.
    pub struct ContextSwitch {
        /// How long it may take to do as told.
        pub window: ByRole<Duration> = Setting::seconds("window_s", 10.0),
    }
}

/// When the rule falls, if no answer comes.
pub fn due(sight: &Sight<'_>, i: &Instance) -> Option<Time> {
    let window = || sight.config.rules.context_switch.window.of(Role::Hybrid);
    let since = i.turn().waits_since().filter(|_| i.condemned().is_none())?;
    i.was_attached().then(|| since + window())
}

impl Core {
    pub(super) fn check_context_switches(&mut self, fallen: &[InstanceId]) {
        let now = self.now;
        for &id in fallen {
            self.s.roster.end_leaving(id, now);
            let Some(i) = self.s.roster.instances().get(id) else {
                continue;
            };
            if due(&self.s.sight(self.now, &self.config), i).is_some_and(|at| at <= now) {
                let since = i.turn().waits_since().unwrap_or(now);
                let what = format!("no answer for {:.1} s", now.since(since).as_secs_f64());
                self.switch_failed(id, &what);
            }
        }
    }

    /// The engine does not do as told.
    pub(in crate::core) fn switch_failed(&mut self, who: InstanceId, what: &str) {
        let context = self.s.gang.context().word();
        let reason = format!("told to change its context ({context}): {what}");
        self.fault(Verdict::new(who, &RULE, reason).hanging());
    }
}
