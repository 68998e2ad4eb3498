//! Detect: one file per rule. A rule says when it is due (`due`) and what it finds then; it is
//! silent in every phase it does not name (I-8).
//!
//! ```text
//!            rule                                  evidence in, or late
//!  healthy ───────► verdict (exit, overdue) ──────────────────────────────► kill, restart
//!     │                                               ▲
//!     ├── trainer idle, agent silent,                 │
//!     │   context switch ──► condemned ───────────────┤
//!     └── rollout silent ──► suspect ── probe failed ─┤
//!     └── health probe ────► suspect ── again, again ─┘
//!              ▲                 │
//!              └── probe ok ─────┘
//! ```
pub mod agent_silent;
pub mod agent_unable;
pub mod attach_overdue;
pub mod context_switch;
pub mod corruption;
pub mod exception;
pub mod exit;
pub mod hardware;
pub mod health_probe;
pub mod node_lost;
pub mod numeric;
pub mod paused_too_long;
pub mod phase_overrun;
pub mod poison;
pub mod pull_stall;
pub mod rollout_silent;
mod rule;
mod ruleset;
mod scope;
pub mod straggler;
pub mod trainer_idle;
mod verdict;

#[cfg(test)]
mod tests;

pub use rule::{LONGEST_S, Rule, RuleId, Setting};
pub use ruleset::{InForce, RuleSet, Source};
pub use verdict::Verdict;

use super::instance::Condemned;
use super::output::Output;
use super::restart::{Action, Case, Plan, decide};
use super::state::{JobState, Scope, Stage};
use super::timers::TimerKey;
use super::{Core, Mutation};
use crate::ids::{Incarnation, IncidentId, InstanceId, Role};

/// Every rule, in the order of [`RuleId`]; `robustctl rules` prints them with what is in force.
pub static RULES: [&Rule; 20] = [
    &exit::RULE,
    &exit::SPAWN,
    &attach_overdue::RULE,
    &attach_overdue::LINK_LOST,
    &trainer_idle::RULE,
    &rollout_silent::RULE,
    &health_probe::RULE,
    &agent_silent::RULE,
    &pull_stall::RULE,
    &exception::RULE,
    &numeric::RULE,
    &corruption::RULE,
    &phase_overrun::RULE,
    &straggler::RULE,
    &context_switch::RULE,
    &node_lost::RULE,
    &hardware::RULE,
    &paused_too_long::RULE,
    &poison::RULE,
    &agent_unable::RULE,
];

impl Core {
    /// Applies every rule that is due by now.
    pub(super) fn check_deadlines(&mut self) {
        self.sync();
        let fallen = self.timers.take_fallen(self.now);
        let (mut nodes, mut instances) = (Vec::new(), Vec::new());
        for key in fallen {
            match key {
                TimerKey::Instance(id) => instances.push(id),
                TimerKey::Node(id) => nodes.push(id),
            }
        }
        self.check_nodes(&nodes);
        let fallen: Vec<InstanceId> = instances;
        let parts = [
            Self::execute_condemned,
            Self::check_overdue,
            Self::check_trainer_idle,
            Self::check_rollouts_silent,
            Self::check_health,
            Self::check_agents_silent,
            Self::check_pull_stalls,
            Self::check_overruns,
            Self::check_pauses,
            Self::check_context_switches,
            Self::end_avoidance,
            Self::respawn_due,
        ];
        for part in parts {
            if !fallen.is_empty() && self.s.job == JobState::Running {
                part(self, &fallen);
            }
        }
        for &id in &fallen {
            // Its timer is set again, by what was found and done.
            self.s.instances.touch(id);
        }
    }

    /// Sources that were passed over for long enough may be tried again.
    fn end_avoidance(&mut self, fallen: &[InstanceId]) {
        let now = self.now;
        for &id in fallen {
            if let Some(i) = self.s.instances.get_mut(id)
                && i.avoid.iter().any(|(_, until)| *until <= now)
            {
                i.avoid.retain(|(_, until)| *until > now);
                self.plan_due = true;
            }
        }
    }

    /// Counts a fault, decides on it and does what was decided.
    pub(super) fn fault(&mut self, mut verdict: Verdict) {
        if self
            .s
            .instances
            .get(verdict.who)
            .is_some_and(|i| i.retiring)
        {
            return self.gone_early(verdict.who, verdict.ended);
        }
        if let Some(hung) = self
            .condemned_rank()
            .filter(|_| verdict.who.role == Role::Trainer)
        {
            // Its peers give up on it, or it takes them along: one fault, and no time for evidence.
            let life = self.s.instances.get(verdict.who).map(|i| i.incarnation);
            return self.execute(hung, life.filter(|_| verdict.ended));
        }
        let blame = self.blame(&mut verdict);
        let plan = decide(&self.count_fault(&verdict, blame.is_found()));
        if plan.action == Action::RestartTask {
            // When it is decided, not when it is done: another may be decided before it is (I-7).
            self.s.task_restarts += 1;
        }
        let incident = self.open_incident(&verdict, &plan);
        self.settle(blame, &verdict, incident);
        self.judged(&verdict, &plan, incident);
    }

    /// Does what was decided, for a hang after its evidence.
    fn judged(&mut self, verdict: &Verdict, plan: &Plan, incident: IncidentId) {
        let Some(i) = self.s.instances.get_mut(verdict.who) else {
            return;
        };
        let incarnation = i.incarnation;
        if verdict.hangs && plan.action != Action::FailJob {
            let until = self.now + self.config.evidence_timeout;
            let wait = plan.wait;
            i.condemned = Some(Condemned {
                incident,
                until,
                wait,
            });
            self.out.push_back(Output::CollectEvidence {
                incarnation,
                incident,
            });
            self.record_incident(incident);
        } else {
            self.record_incident(incident);
            self.carry_out(plan, verdict.ended.then_some(incarnation));
        }
    }

    /// The rank whose evidence is waited for.
    fn condemned_rank(&self) -> Option<InstanceId> {
        let mut ranks = self.s.instances.role(Role::Trainer);
        ranks.find(|i| i.condemned.is_some()).map(|i| i.id)
    }

    /// Kills what was condemned and whose evidence is in or late.
    fn execute_condemned(&mut self, fallen: &[InstanceId]) {
        let now = self.now;
        for &id in fallen {
            let condemned = self.s.instances.get(id).and_then(|i| i.condemned);
            if condemned.is_some_and(|c| c.until <= now) {
                self.execute(id, None);
            }
        }
    }

    /// Carries out the restart that was decided when the instance was condemned. `ended`: the process
    /// that is no more, whose end made it so.
    pub(super) fn execute(&mut self, who: InstanceId, ended: Option<Incarnation>) {
        let Some(i) = self.s.instances.get_mut(who) else {
            return;
        };
        let Some(condemned) = i.condemned.take() else {
            return;
        };
        let scope = self
            .s
            .recoveries
            .iter()
            .find(|r| r.incident == condemned.incident);
        let action = match scope.map(|r| r.scope) {
            Some(Scope::Task) => Action::RestartTask,
            Some(Scope::Gang) => Action::RestartGang,
            Some(Scope::Instance) | None => Action::RestartInstance,
        };
        let plan = Plan {
            action,
            who,
            committed: self.s.committed,
            is_silent: false,
            wait: condemned.wait,
            why: String::new(),
            moves: Vec::new(),
        };
        self.carry_out(&plan, ended);
        self.mark(who, "killed");
    }

    /// The counters that the decision table looks at, this fault included unless its requests are to
    /// blame.
    fn count_fault(&mut self, verdict: &Verdict, poisoned: bool) -> Case {
        let moves = match verdict.who.role {
            Role::Trainer => self.moves(&self.s.instances.ids(Role::Trainer)),
            _ => self.moves(&[verdict.who]),
        };
        let restored = !matches!(self.s.gang.stage, Stage::Forming | Stage::Restoring);
        let budget = self.config.budgets.of(verdict.kind);
        let is_silent = self.config.own_loop.is_some_and(|own| !own.commits);
        if is_silent && self.s.gang.ran(budget.window, self.now) {
            self.s.gang.succeeded();
            self.s.task_restarts = 0;
        }
        let (now, kind, gang) = (self.now, verdict.kind, &mut self.s.gang);
        let failures = if verdict.who.role == Role::Trainer {
            match restored {
                true => gang.faults_in_step += 1,
                false => gang.failed_restarts += 1,
            }
            gang.strikes.strike(kind, budget.window, now)
        } else {
            let i = self.s.instances.get_mut(verdict.who);
            i.map_or(0, |i| match poisoned {
                true => i.strikes.in_a_row(kind, budget.window, now),
                false => i.strikes.strike(kind, budget.window, now),
            })
        };
        let failures = match self.config.mutant(Mutation::ForgetBudget) {
            true => 1,
            false => failures,
        };
        let gang = &self.s.gang;
        Case {
            policy: self.config.policy,
            who: verdict.who,
            kind,
            seen: verdict.reason.clone(),
            committed: self.s.committed,
            startup_error: verdict.startup_error.clone(),
            role_proven: self.s.proven.contains(&verdict.who.role) && !verdict.never_served,
            failed_restarts: gang.failed_restarts,
            faults_in_step: gang.faults_in_step,
            first_iteration: gang.restarted && restored && !gang.stepped,
            failures,
            budget,
            is_silent,
            task_restarts: self.s.task_restarts,
            max_task_restarts: self.config.max_task_restarts,
            moves,
        }
    }

    /// The stacks of a process that is about to be killed.
    pub(super) fn on_evidence(&mut self, incarnation: Incarnation, text: String) {
        let now = self.now;
        let Some(i) = self.s.instances.life_mut(incarnation) else {
            return;
        };
        let Some(condemned) = i.condemned.as_mut() else {
            return;
        };
        condemned.until = now;
        let incident = condemned.incident;
        if let Some(incident) = self.incident_mut(incident) {
            incident.evidence = text;
        }
    }
}
