//! Phase overrun: a phase that takes far longer than it ever did, or than the job file allows.
//!
//! The bound is the 99th percentile of the durations seen in that phase, times a factor; it is
//! learned for each role, from all its instances, and not before enough were seen. An event, no
//! verdict: that a phase is long says nothing about health (I-8).
use super::{ByPhase, ByRole, Fall, Finding, Rule, Setting, Sight, Watch, settings};
use crate::core::roster::instance::Instance;
use crate::core::state::State;
use crate::core::weights::Supply;
use crate::ids::Role;
use crate::phase::Phase;
use crate::time::Time;
use std::time::Duration;

/// A phase that takes longer than its bound.
pub const RULE: Rule = Rule {
    name: "phase overrun",
    roles: &Role::ALL,
    // How long one waits for work, generates or is paused depends on others.
    phases: &[
        Phase::Init,
        Phase::LoadCheckpoint,
        Phase::AwaitBatch,
        Phase::ContextSwitch,
        Phase::Reshard,
        Phase::RefLogprob,
        Phase::OldLogprob,
        Phase::Advantage,
        Phase::Update,
        Phase::Snapshot,
        Phase::Publish,
        Phase::PullWeights,
        Phase::AwaitingTool,
    ],
    signal: "time in a phase, against its own past (99th percentile x factor) or `bound_s`",
    action: "event",
    kind: None,
    event: Some("overrun"),
    watch: Some(Watch {
        due,
        fall: Fall::Judge(judge),
        is_learned: true,
    }),
};

settings! {
    /// What a job file may set of it.
    pub struct PhaseOverrun {
        /// How long a phase may take; 0: what was learned.
        pub bound: ByPhase<Duration> = Setting::number("bound_s", 0.0, 0.0, super::LONGEST_S),
        /// A learned bound is so many times what was seen.
        pub factor: ByRole<f64> = Setting::number("factor", 3.0, 1.0, 1000.0),
        /// Durations that must have been seen before a bound is learned.
        pub samples: ByRole<u32> = Setting::number("samples", 20.0, 2.0, 10_000.0),
        /// A learned bound is never shorter: small phases vary by a lot.
        pub least: ByRole<Duration> = Setting::seconds("least_s", 1.0),
    }
}

/// The bound in force for an instance's phase; none while nothing is known.
fn bound(sight: &Sight<'_>, i: &Instance) -> Option<Duration> {
    let (set, role) = (&sight.config.rules.phase_overrun, i.id().role);
    let given = set.bound.at(role, i.phase());
    if !given.is_zero() {
        return Some(given);
    }
    let seen = sight.durations.get(role, i.phase())?;
    let p99 = seen.percentile_99(set.samples.of(role).into())?;
    Some(p99.mul_f64(set.factor.of(role)).max(set.least.of(role)))
}

/// Since when the instance itself takes its time. A pull is as fast as its source: of one that has no
/// source, or whose source is itself pulling, nothing is said. Nor is it while the job is paused, and
/// the time of a pause is nobody's.
fn since(sight: &Sight<'_>, i: &Instance) -> Option<Time> {
    if sight.is_paused {
        return None;
    }
    if i.phase() != Phase::PullWeights {
        return Some(i.phase_since().max(sight.resumed_at));
    }
    let pull = sight.weights.of(i.id()).pull();
    let pull = pull.filter(|p| p.supply == Supply::Whole);
    pull.map(|p| i.phase_since().max(p.since))
}

/// When the rule falls, if the phase goes on.
pub fn due(sight: &Sight<'_>, i: &Instance) -> Option<Time> {
    let applies = RULE.phases.contains(&i.phase()) && i.was_attached() && !i.overrun();
    let bound = applies.then(|| bound(sight, i))?;
    Some(since(sight, i)? + bound?)
}

/// Says, once, that the instance's phase takes too long.
fn judge(sight: &Sight<'_>, i: &Instance) -> Option<Finding> {
    let took = sight.now.since(i.phase_since());
    let bound = bound(sight, i)?;
    Some(Finding::Lasts(format!(
        "{} is in {} for {:.1} s, longer than the bound of {:.1} s",
        i.id(),
        i.phase(),
        took.as_secs_f64(),
        bound.as_secs_f64()
    )))
}

/// Learns how long the phase took that an instance leaves; nothing of one that a pause fell into.
pub(in crate::core) fn learn(s: &mut State, now: Time, role: Role, phase: Phase, took: Duration) {
    let paused = s.orders.is_paused() || now.since(s.orders.resumed_at()) < took;
    if RULE.phases.contains(&phase) && !paused {
        s.durations.add(role, phase, took);
    }
}
