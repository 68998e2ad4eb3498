//! Incidents: opened by a verdict, marked on the way, closed when useful work goes on.
use super::Core;
use super::detect::Verdict;
use super::incident::{Incident, IncidentOutcome};
use super::instance::Instance;
use super::output::{Output, Record, Severity};
use super::restart::{Action, Plan};
use super::state::{Recovery, Scope, Stage};
use crate::ids::{Incarnation, IncidentId, InstanceId, Role};
use crate::time::Time;

/// Incidents kept in memory; older ones are in the journal.
const KEPT: usize = 200;
/// Of these, so many keep their evidence, which can be long.
const EVIDENCE_KEPT: usize = 10;

impl Core {
    /// Opens an incident for a verdict and its plan.
    pub(super) fn open_incident(&mut self, verdict: &Verdict, plan: &Plan) -> IncidentId {
        let id = self.s.next_incident;
        self.s.next_incident = id.next();
        let failed = plan.action == Action::FailJob;
        let escalated = failed || plan.action == Action::RestartTask;
        let who = verdict.who;
        let life = self.s.instances.get(who);
        let struck = self.struck(verdict);
        let incident = Incident {
            id,
            who,
            incarnation: life.map(|i| i.incarnation).unwrap_or_default(),
            rule: verdict.rule.name().to_owned(),
            reason: verdict.reason.clone(),
            plan: plan.to_string(),
            step: self.s.committed,
            struck,
            verdict: self.now,
            attached: None,
            resumed: None,
            outcome: match escalated {
                true => IncidentOutcome::Escalated,
                false => IncidentOutcome::Recovering,
            },
            evidence: String::new(),
            swept: Vec::new(),
            marks: self.marks_of(verdict, struck),
        };
        let text = format!(
            "{who}: {} ({}); {}",
            verdict.rule.name(),
            verdict.reason,
            incident.plan
        );
        self.event(Severity::Fault, "incident", Some(who), text);
        self.s.incidents.push_back(incident);
        self.trim();
        if plan.action == Action::RestartTask {
            self.escalate_open();
        }
        let scope = match plan.action {
            Action::RestartInstance => Scope::Instance,
            Action::RestartGang => Scope::Gang,
            Action::RestartTask | Action::FailJob => Scope::Task,
        };
        if !failed {
            self.s.recoveries.push(Recovery {
                incident: id,
                who,
                scope,
            });
        }
        id
    }

    /// When the fault struck, as well as it is known. A fault that nobody injected shows itself in
    /// the exit, or in the silence since the last sign of life.
    fn struck(&self, verdict: &Verdict) -> Time {
        let life = self.s.instances.get(verdict.who);
        let shown = verdict.exited.or(life.map(|i| i.last_sign));
        let struck = life.and_then(|i| i.struck).or(shown);
        let struck = self.gang_struck(verdict.who).or(struck);
        struck.unwrap_or(self.now).min(self.now)
    }

    /// The stages that are over with the verdict: what the kernel took to end the process, and what
    /// it took to see that.
    fn marks_of(&self, verdict: &Verdict, struck: Time) -> Vec<(String, Time)> {
        let within = |at: Time| at.clamp(struck, self.now);
        let exited = verdict.exited.map(|at| ("exited".to_owned(), within(at)));
        exited
            .into_iter()
            .chain([("seen".to_owned(), self.now)])
            .collect()
    }

    /// A hang of one rank stops its peers too, so the instant of an injected one counts for the
    /// gang, whichever rank the rule named.
    fn gang_struck(&self, who: InstanceId) -> Option<Time> {
        let ranks = self
            .s
            .instances
            .role(who.role)
            .filter(|_| who.role == Role::Trainer);
        ranks.filter_map(|i| i.struck).min()
    }

    fn trim(&mut self) {
        if self.s.incidents.len() > KEPT {
            self.s.incidents.pop_front();
        }
        if let Some(at) = self.s.incidents.len().checked_sub(EVIDENCE_KEPT + 1)
            && let Some(old) = self.s.incidents.get_mut(at)
        {
            old.evidence.clear();
        }
    }

    /// A task restart takes every recovery under way with it.
    fn escalate_open(&mut self) {
        let open: Vec<_> = self.s.recoveries.iter().map(|r| r.incident).collect();
        for recovery in &mut self.s.recoveries {
            recovery.scope = Scope::Task;
        }
        for id in open {
            if let Some(incident) = self.incident_mut(id) {
                incident.outcome = IncidentOutcome::Escalated;
            }
        }
    }

    pub(super) fn incident_mut(&mut self, id: IncidentId) -> Option<&mut Incident> {
        self.s.incidents.iter_mut().rev().find(|i| i.id == id)
    }

    /// Writes an incident to the journal as it is now.
    pub(super) fn record_incident(&mut self, id: IncidentId) {
        if let Some(incident) = self.incident_mut(id) {
            let record = Record::Incident(Box::new(incident.clone()));
            self.out.push_back(Output::Record(record));
        }
    }

    /// Notes a life that ends with the recoveries that cover its place.
    pub(super) fn sweep(&mut self, id: InstanceId, life: Incarnation) {
        for incident in self.covering(id) {
            if let Some(i) = self.incident_mut(incident)
                && i.incarnation != life
            {
                i.swept.push(life);
            }
        }
    }

    fn covering(&self, id: InstanceId) -> Vec<IncidentId> {
        let covering = self.s.recoveries.iter().filter(|r| r.covers(id));
        covering.map(|r| r.incident).collect()
    }

    /// Notes the first instant of a stage in every recovery that covers the instance.
    pub(super) fn mark(&mut self, id: InstanceId, name: &str) {
        for incident in self.covering(id) {
            self.mark_one(incident, name);
        }
    }

    /// Notes a stage in every recovery of which all instances have come to it.
    pub(super) fn mark_when_all(&mut self, name: &str, reached: fn(&Instance) -> bool) {
        for recovery in self.s.recoveries.clone() {
            if self.carried_out(&recovery) && self.all_covered(&recovery, reached) {
                self.mark_one(recovery.incident, name);
            }
        }
    }

    fn mark_one(&mut self, id: IncidentId, name: &str) {
        let now = self.now;
        if let Some(i) = self.incident_mut(id)
            && i.marks.iter().all(|(n, _)| n != name)
        {
            i.marks.push((name.to_owned(), now));
        }
    }

    fn all_covered(&self, recovery: &Recovery, reached: fn(&Instance) -> bool) -> bool {
        self.s
            .instances
            .iter()
            .filter(|i| recovery.covers(i.id))
            .all(reached)
    }

    /// Whether the kill it began with was done; before it, the old process still counts as linked.
    fn carried_out(&self, recovery: &Recovery) -> bool {
        let waits = |i: &Instance| i.condemned.is_some_and(|c| c.incident == recovery.incident);
        !self.s.instances.iter().any(waits)
    }

    /// Notes which recoveries have their processes back, and closes those whose work goes on.
    pub(super) fn advance_recoveries(&mut self) {
        let now = self.now;
        for recovery in self.s.recoveries.clone() {
            if !self.carried_out(&recovery) || !self.all_covered(&recovery, Instance::attached) {
                continue;
            }
            self.mark_one(recovery.incident, "attached");
            let resumed = self.work_goes_on(&recovery);
            let id = recovery.incident;
            let Some(incident) = self.incident_mut(id) else {
                continue;
            };
            incident.attached.get_or_insert(now);
            if !resumed {
                continue;
            }
            incident.resumed = Some(now);
            if incident.outcome == IncidentOutcome::Recovering {
                incident.outcome = IncidentOutcome::Recovered;
            }
            let took = incident.total().unwrap_or_default().as_millis();
            let who = recovery.who;
            self.s.recoveries.retain(|r| r.incident != id);
            self.record_incident(id);
            let text = format!("{who} is back at work {took} ms after the fault (incident {id})");
            self.event(Severity::Info, "recovered", Some(who), text);
        }
    }

    fn work_goes_on(&self, recovery: &Recovery) -> bool {
        let admitted = |i: &Instance| i.admitted && i.suspect.is_none();
        match (recovery.scope, recovery.who.role) {
            (Scope::Task, _) => self.gang_works() && self.s.instances.engines().any(admitted),
            (Scope::Gang, _) | (_, Role::Trainer) => self.gang_works(),
            (Scope::Instance, Role::Hybrid | Role::Rollout) => {
                self.s.instances.get(recovery.who).is_some_and(admitted)
            }
            (Scope::Instance, Role::Agent) => {
                let agent = self.s.instances.get(recovery.who);
                let leases = agent.map_or(0, |a| self.s.trajectories.leases(a.incarnation));
                leases > 0 || !self.s.trajectories.any_pending()
            }
        }
    }

    /// The trainer computes, or is complete and only waits for its batch.
    fn gang_works(&self) -> bool {
        let serving = self.s.gang.serves.map(|v| v.0) == Some(self.s.committed.0);
        match self.s.gang.stage {
            Stage::Training(_) => self
                .s
                .instances
                .role(Role::Trainer)
                .any(|i| i.phase.is_trainer_compute()),
            Stage::Ready => serving,
            _ => false,
        }
    }
}
