//! Fault: a verdict (`detect`) is counted, decided on (`recover/restart`) and done.
use crate::core::detect::Verdict;
use crate::core::recover::Scope;
use crate::core::recover::restart::{Action, Case, Plan, decide};
use crate::core::roster::instance::Condemned;
use crate::core::roster::nodes::Given;
use crate::core::{Core, FaultKind, Mutation};
use crate::ids::{Incarnation, IncidentId, InstanceId, Role};

impl Core {
    /// Counts a fault, decides on it and does what was decided.
    pub(in crate::core) fn fault(&mut self, verdict: Verdict) {
        // Whoever folds others under it asks for its number.
        let _ = self.fault_of_rule(verdict);
    }

    /// The same; the number of the incident that was opened for it, if one was.
    pub(in crate::core) fn fault_of_rule(&mut self, mut verdict: Verdict) -> Option<IncidentId> {
        if self.config.rules.is_off(verdict.rule) {
            return None;
        }
        if self
            .s
            .roster
            .instances()
            .get(verdict.who)
            .is_some_and(|i| i.retiring())
        {
            self.gone_early(verdict.who, verdict.ended);
            return None;
        }
        if let Some(hung) = self
            .condemned_rank()
            .filter(|_| verdict.who.role == Role::Trainer)
        {
            // Its peers give up on it, or it takes them along: one fault, and no time for evidence.
            let life = self
                .s
                .roster
                .instances()
                .get(verdict.who)
                .map(|i| i.incarnation());
            self.execute(hung, life.filter(|_| verdict.ended));
            return None;
        }
        verdict.under = self.first_of(&verdict);
        let blame = self.blame(&mut verdict);
        // First of all: where the next life is to run depends on it.
        self.count_on_node(&verdict, blame.is_found());
        let case = self.count_fault(&verdict, blame.is_found());
        let plan = decide(&case);
        if plan.action == Action::RestartTask {
            self.s.recover.count_task_restart(&self.config);
        }
        let incident = self.open_incident(&verdict, &plan, case.cause, blame.is_found());
        self.settle(blame, &verdict, incident);
        self.judged(&verdict, &plan, incident);
        Some(incident)
    }

    /// The incident that the verdict is folded under: the first one of what both come from. A gang's is
    /// under nobody's, for what its steps cost is counted there.
    fn first_of(&self, verdict: &Verdict) -> Option<IncidentId> {
        match verdict.who.role {
            Role::Trainer => None,
            _ => {
                let life = self
                    .s
                    .roster
                    .instances()
                    .get(verdict.who)
                    .map(|i| i.incarnation());
                let rooted = || self.s.recover.rooted_in(verdict.who, life?);
                let first = verdict.under.or_else(rooted)?;
                Some(self.s.recover.first_of(first))
            }
        }
    }

    /// Does what was decided, for a hang after its evidence.
    fn judged(&mut self, verdict: &Verdict, plan: &Plan, incident: IncidentId) {
        let Some(i) = self.s.roster.get_mut(verdict.who) else {
            return;
        };
        let incarnation = i.incarnation();
        if verdict.hangs && plan.action != Action::FailJob {
            let until = self.now + self.config.evidence_timeout;
            let wait = plan.wait;
            i.condemn(Condemned {
                incident,
                until,
                wait,
            });
            self.ask_for_evidence(verdict.who, incident);
            self.record_incident(incident);
        } else {
            self.record_incident(incident);
            self.carry_out(plan, verdict.ended.then_some(incarnation));
        }
    }

    /// The rank whose evidence is waited for.
    fn condemned_rank(&self) -> Option<InstanceId> {
        let mut ranks = self.s.roster.instances().role(Role::Trainer);
        ranks.find(|i| i.condemned().is_some()).map(|i| i.id())
    }

    /// Kills what was condemned and whose evidence is in or late.
    pub(in crate::core) fn execute_condemned(&mut self, fallen: &[InstanceId]) {
        let now = self.now;
        for &id in fallen {
            let condemned = self
                .s
                .roster
                .instances()
                .get(id)
                .and_then(|i| i.condemned());
            if condemned.is_some_and(|c| c.until <= now) {
                self.execute(id, None);
            }
        }
    }

    /// Carries out the restart that was decided when the instance was condemned. `ended`: the process
    /// that is no more, whose end made it so.
    pub(in crate::core) fn execute(&mut self, who: InstanceId, ended: Option<Incarnation>) {
        let Some(i) = self.s.roster.get_mut(who) else {
            return;
        };
        let Some(condemned) = i.take_condemned() else {
            return;
        };
        self.conclude(condemned.incident, condemned.until <= self.now);
        let scope = self.s.recover.recoveries().get(condemned.incident);
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
        self.record_incident(condemned.incident);
    }

    /// How many failures of a kind count in a row of an instance.
    pub fn failures_in_a_row(&self, who: InstanceId, kind: FaultKind) -> u32 {
        let window = self.config.budgets.of(kind).window;
        let i = self.s.roster.instances().get(who);
        i.map_or(0, |i| i.strikes().in_a_row(kind, window, self.now))
    }

    /// The counters that the decision table looks at, this fault included unless its requests are to
    /// blame, or what another incident tells of.
    fn count_fault(&mut self, verdict: &Verdict, poisoned: bool) -> Case {
        self.derive();
        let restarted = match verdict.who.role {
            Role::Trainer => self.s.roster.instances().ids(Role::Trainer),
            _ => vec![verdict.who],
        };
        let placement = self.s.placement(self.now, &self.config);
        let moves = placement.moves(&restarted, &mut Given::default());
        let restored = self.s.gang.is_restored();
        let budget = self.config.budgets.of(verdict.kind);
        let is_silent = self.config.own_loop.is_some_and(|own| !own.commits);
        if is_silent && self.s.gang.ran(budget.window, self.now) {
            self.gang_succeeded();
        }
        let folded = verdict.under.is_some() && !self.config.mutant(Mutation::FoldedCounts);
        let mut cause = self.count_cause(verdict, poisoned || folded);
        if let Some(again) = cause.as_mut().filter(|_| folded) {
            // Whatever was counted before, this is not what exceeds it.
            again.count = again.count.min(self.config.same_cause.saturating_sub(1));
        }
        let (now, kind) = (self.now, verdict.kind);
        let failures = if verdict.who.role == Role::Trainer {
            self.s.gang.count_fault(kind, budget.window, now)
        } else {
            let i = self.s.roster.get_mut(verdict.who);
            i.map_or(0, |i| match (folded, poisoned) {
                // Whatever was counted before, this is not what exceeds it.
                (true, _) => i
                    .strikes()
                    .in_a_row(kind, budget.window, now)
                    .min(budget.max),
                (false, true) => i.strikes().in_a_row(kind, budget.window, now),
                (false, false) => i.strikes_mut().strike(kind, budget.window, now),
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
            cause,
            same_cause: self.config.same_cause,
            committed: self.s.committed,
            startup_error: verdict.startup_error.clone(),
            role_proven: self.s.proven.contains(&verdict.who.role) && !verdict.never_served,
            failed_restarts: gang.failed_restarts(),
            faults_in_step: gang.faults_in_step(),
            first_iteration: gang
                .first_iteration()
                .filter(|_| restored && !self.config.mutant(Mutation::CheapFirstStep)),
            failures,
            budget,
            is_silent,
            task_restarts: self.s.recover.task_restarts(),
            max_task_restarts: self.config.max_task_restarts,
            moves,
        }
    }
}
