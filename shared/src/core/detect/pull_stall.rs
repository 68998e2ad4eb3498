//! Pull stall: a pull that brings no bytes is tried elsewhere. No verdict on anyone: the puller has a
//! deadline of its own and names its source; this is for the case that its report was lost. One whose
//! source is itself pulling and got nothing new waits without fault, however long that takes; so does
//! one that has everything and serves it only when its requests allow.
use super::{ByRole, Fall, Finding, Rule, Setting, Sight, Watch, settings};
use crate::core::roster::instance::Instance;
use crate::core::weights::{Pull, PullOrder, Supply};
use crate::ids::Role;
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
        fall: Fall::Judge(judge),
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
pub fn due(sight: &Sight<'_>, i: &Instance) -> Option<Time> {
    let window = sight.config.rules.pull_stall.window.of(i.id().role);
    let moves = |p: &&Pull| matches!(p.supply, Supply::Whole | Supply::Flows);
    let holder = sight.weights.of(i.id());
    let pull = holder.pull().filter(moves)?;
    // One that has everything may be told to pull again, and still waits for its requests to end.
    let all = |(bytes, total): (u64, u64)| bytes >= total;
    (!holder.progress().is_some_and(all)).then_some(pull.moved_at + window)
}

fn judge(sight: &Sight<'_>, i: &Instance) -> Option<Finding> {
    let pull = sight.weights.of(i.id()).pull()?;
    let (version, source) = (pull.version, *pull.sources.first()?);
    let silent = sight.now.since(pull.moved_at).as_secs_f64();
    let text = format!(
        "{}'s pull of {version} from {source} brought no bytes for {silent:.1} s, and nobody said why",
        i.id()
    );
    Some(Finding::Stalls {
        order: PullOrder::of(pull),
        source,
        text,
    })
}
