//! Pull stall: a pull that brings no bytes is tried elsewhere. No verdict on anyone: the puller has a
//! deadline of its own and names its source; this is for the case that its report was lost. One whose
//! source is itself pulling and got nothing new waits without fault, however long that takes; so does
//! one that has everything and serves it only when its requests allow.
use super::{ByRole, Rule, Setting, Watch, settings};
use crate::core::roster::instance::Instance;
use crate::core::weights::{Pull, Supply};
use crate::core::{Core, Severity};
use crate::ids::{InstanceId, Role};
use crate::time::Time;
use std::time::Duration;

/// A pull that brings no bytes.
pub const RULE: Rule = Rule {
    name: "pull stall",
    roles: &[Role::Hybrid, Role::Rollout],
    phases: &[],
    signal: "a pull brings no bytes though its source has some, and its puller does not say so",
    action: "pull from elsewhere",
    kind: None,
    event: Some("stall"),
    watch: Some(Watch {
        due,
        check: Core::check_pull_stalls,
        is_learned: false,
    }),
};

settings! {
    /// What a job file may set of it.
    pub struct PullStall {
        /// How long a pull may bring nothing.
        pub window: ByRole<Duration> = Setting::seconds("window_s", 10.0),
    }
}

/// When the running pull counts as stalled.
pub fn due(core: &Core, i: &Instance) -> Option<Time> {
    let window = core.config.rules.pull_stall.window.of(i.id.role);
    let moves = |p: &&Pull| matches!(p.supply, Supply::Whole | Supply::Flows);
    let holder = core.s.weights.of(i.id);
    let pull = holder.pull().filter(moves)?;
    // One that has everything may be told to pull again, and still waits for its requests to end.
    let all = |(bytes, total): (u64, u64)| bytes >= total;
    (!holder.progress().is_some_and(all)).then_some(pull.moved_at + window)
}

impl Core {
    pub(super) fn check_pull_stalls(&mut self, fallen: &[InstanceId]) {
        let now = self.now;
        for &id in fallen {
            let Some(i) = self.s.instances.get(id) else {
                continue;
            };
            if due(self, i).is_none_or(|at| at > now) {
                continue;
            }
            let Some(pull) = self.s.weights.of(id).pull().cloned() else {
                continue;
            };
            let (weights, mut cx) = self.weights();
            let why = "no bytes came";
            if let Some(&source) = pull.sources.first()
                && weights.source_failed(&mut cx, id, pull.version, source, why)
            {
                let silent = now.since(pull.moved_at).as_secs_f64();
                let text = format!(
                    "{id}'s pull of {} from {source} brought no bytes for {silent:.1} s, and nobody \
                     said why",
                    pull.version
                );
                self.event(Severity::Warn, "stall", Some(id), text);
            }
        }
    }
}
