//! Agent silent: an agent worker that holds trajectories and uses *no processor time at all* for its
//! window is stopped. Its work is waiting, so anything less says nothing: a living
//! one wakes for its heartbeat. Silent in `awaiting_tool` and without leases.
use super::{ByPhase, Fall, Finding, Rule, Setting, Sight, Verdict, Watch, settings};
use crate::core::roster::instance::Instance;
use crate::core::{FaultKind, Mutation};
use crate::ids::Role;
use crate::phase::Phase;
use crate::time::Time;
use std::time::Duration;

/// An agent worker that stopped.
pub const RULE: Rule = Rule {
    name: "agent silent",
    roles: &[Role::Agent],
    phases: &[Phase::Init, Phase::Idle, Phase::Generating],
    signal: "holds trajectories and uses no processor time at all",
    action: "collect evidence, restart",
    kind: Some(FaultKind::Hang),
    event: None,
    watch: Some(Watch {
        due,
        fall: Fall::Judge(judge),
        is_learned: false,
    }),
};

settings! {
    /// What a job file may set of it.
    pub struct AgentSilent {
        /// How long nothing at all may move.
        pub window: ByPhase<Duration> = Setting::window(120.0),
    }
}

/// When the rule falls, if nothing moves.
pub fn due(sight: &Sight<'_>, i: &Instance) -> Option<Time> {
    // What one without its link does now it cannot say; it is watched for coming back.
    let applies = i.id().role == Role::Agent && i.attached() && i.condemned().is_none();
    let tools = i.phase() == Phase::AwaitingTool && !sight.config.mutant(Mutation::KillInTool);
    let works = !tools && sight.work.requests.table().leases(i.incarnation()) > 0;
    let since = i.moved_at().max(i.phase_since());
    let window = || {
        let rules = &sight.config.rules;
        rules.agent_silent.window.at(Role::Agent, i.phase())
    };
    (applies && works && i.sampled_at() > since).then(|| since + window())
}

fn judge(sight: &Sight<'_>, i: &Instance) -> Option<Finding> {
    let held = sight.work.requests.table().leases(i.incarnation());
    let still = sight.now.since(i.moved_at()).as_secs_f64();
    let reason = format!("no processor time at all for {still:.1} s with {held} leases");
    let verdict = Verdict::new(i.id(), &RULE, reason).hanging();
    Some(Finding::Failed(verdict))
}
