//! Straggler: a rank that takes longer than the gang's median for the same work, step after step.
//!
//! Ranks wait for each other in `update` (they exchange gradients), so all of them take the same time
//! there; what tells them apart is the time in the logprob phases, where each works alone. The
//! median is the lower one, or the slow one of two ranks would be its own measure. An event, no
//! verdict: a slow rank still trains.
use super::{ByRole, Rule, Setting, settings};
use crate::core::Severity;
use crate::core::effects::Cx;
use crate::core::roster::Roster;
use crate::core::roster::instance::Instance;
use crate::ids::{Role, Step};
use crate::phase::Phase;
use std::time::Duration;

/// A rank slower than its gang.
pub const RULE: Rule = Rule {
    name: "straggler",
    roles: &[Role::Trainer],
    phases: &[Phase::RefLogprob, Phase::OldLogprob],
    signal: "a step's time in the phases without exchange, against the gang's median",
    action: "event",
    kind: None,
    event: Some("straggler"),
    watch: None,
};

settings! {
    /// What a job file may set of it.
    pub struct Straggler {
        /// How many times the gang's median is too slow.
        pub factor: ByRole<f64> = Setting::number("factor", 1.5, 1.01, 1000.0),
        /// Steps in a row.
        pub steps: ByRole<u32> = Setting::number("steps", 3.0, 1.0, 1000.0),
        /// Below this difference it is the machine's noise.
        pub least: ByRole<Duration> = Setting::seconds("least_s", 0.1),
    }
}

/// A step is done: whoever was too slow in it once more than often enough is named.
pub(in crate::core) fn compare(cx: &mut Cx<'_>, roster: &mut Roster, step: Step) {
    let set = &cx.config.rules.straggler;
    let (factor, steps, least) = (
        set.factor.of(Role::Trainer),
        set.steps.of(Role::Trainer),
        set.least.of(Role::Trainer),
    );
    let ranks = roster.instances().role(Role::Trainer);
    let mut times: Vec<Duration> = ranks.map(Instance::alone).collect();
    times.sort_unstable();
    let median = times
        .get(times.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or_default();
    let limit = median.mul_f64(factor).max(median + least);
    let mut slow = Vec::new();
    for id in roster.instances().ids(Role::Trainer) {
        let Some(i) = roster.get_mut(id) else {
            continue;
        };
        let (took, in_a_row) = i.end_step(limit);
        if in_a_row == steps {
            slow.push((id, took));
        }
    }
    if cx.config.rules.is_off(&RULE) {
        return;
    }
    for (id, took) in slow {
        let text = format!(
            "{id} is a straggler: {} s of its own work in step {step} where the gang's median is \
             {} s, for {steps} steps in a row",
            rounded(took),
            rounded(median)
        );
        cx.event(Severity::Warn, "straggler", Some(id), text);
    }
}

fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 100.0).round() / 100.0
}
