//! Paused too long: somebody paused an engine and left it so. Whoever updates weights by himself pauses
//! it first, and may be gone before he lets it go on; to all else it looks like one that waits.
//!
//! Silent while the job is paused, and of a hybrid engine that was told to pause. An event, no verdict:
//! the engine does as it was told.
use super::{ByRole, Fall, Finding, Rule, Setting, Sight, Watch, settings};
use crate::core::gang::context::Turn;
use crate::core::roster::instance::Instance;
use crate::ids::Role;
use crate::phase::Phase;
use crate::time::Time;
use std::time::Duration;

/// An engine that stays paused.
pub const RULE: Rule = Rule {
    name: "paused too long",
    roles: &[Role::Hybrid, Role::Rollout],
    phases: &[Phase::Paused],
    signal: "paused for the whole window, neither with the job nor by the controller",
    action: "event",
    kind: None,
    event: Some("paused"),
    watch: Some(Watch {
        due,
        fall: Fall::Judge(judge),
        is_learned: false,
    }),
};

settings! {
    /// What a job file may set of it.
    pub struct PausedTooLong {
        /// How long an engine may be paused.
        pub window: ByRole<Duration> = Setting::seconds("window_s", 600.0),
    }
}

/// When the rule falls, if it stays paused.
pub fn due(sight: &Sight<'_>, i: &Instance) -> Option<Time> {
    let told = i.id().role == Role::Hybrid && i.turn() != Turn::Rolls;
    let applies =
        i.id().role.is_engine() && i.phase() == Phase::Paused && i.attached() && !i.overrun();
    if !applies || told || sight.is_paused {
        return None;
    }
    let window = sight.config.rules.paused_too_long.window.of(i.id().role);
    Some(i.phase_since().max(sight.resumed_at) + window)
}

/// Says, once a pause, that it lasts.
fn judge(sight: &Sight<'_>, i: &Instance) -> Option<Finding> {
    Some(Finding::Lasts(format!(
        "{} is paused for {:.1} s, and neither by the job nor by the controller: whoever paused it has to \
         let it go on",
        i.id(),
        sight.now.since(i.phase_since()).as_secs_f64()
    )))
}
