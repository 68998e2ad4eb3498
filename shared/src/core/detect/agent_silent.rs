//! Agent silent: an agent worker that holds trajectories and uses *no processor time at all* for its
//! window is stopped. Its work is waiting, so anything less says nothing: a living
//! one wakes for its heartbeat. Silent in `awaiting_tool` and without leases.
use super::{ByPhase, Rule, Setting, Verdict, Watch, settings};
use crate::core::roster::instance::Instance;
use crate::core::{Core, FaultKind, Mutation};
use crate::ids::{InstanceId, Role};
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
        check: Core::check_agents_silent,
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
pub fn due(core: &Core, i: &Instance) -> Option<Time> {
    let applies = i.id.role == Role::Agent && i.was_attached() && i.condemned.is_none();
    let tools = i.phase == Phase::AwaitingTool && !core.config.mutant(Mutation::KillInTool);
    let works = !tools && core.s.work.requests.table().leases(i.incarnation) > 0;
    let since = i.moved_at.max(i.phase_since);
    let window = || {
        let rules = &core.config.rules;
        rules.agent_silent.window.at(Role::Agent, i.phase)
    };
    (applies && works && i.sampled_at > since).then(|| since + window())
}

impl Core {
    pub(super) fn check_agents_silent(&mut self, fallen: &[InstanceId]) {
        let now = self.now;
        for &who in fallen {
            let Some(i) = self.s.instances.get(who) else {
                continue;
            };
            if due(self, i).is_none_or(|at| at > now) {
                continue;
            }
            let held = self.s.work.requests.table().leases(i.incarnation);
            let still = now.since(i.moved_at).as_secs_f64();
            let reason = format!("no processor time at all for {still:.1} s with {held} leases");
            self.fault(Verdict::new(who, &RULE, reason).hanging());
        }
    }
}
