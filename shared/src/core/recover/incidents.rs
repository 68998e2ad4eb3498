//! Incidents: opened by a verdict, marked on the way, closed when useful work goes on.
use crate::core::Core;
use crate::core::detect::Verdict;
use crate::core::output::{Output, Record, Severity};
use crate::core::recover::cause::Recurring;
use crate::core::recover::incident::{Incident, IncidentOutcome};
use crate::core::recover::restart::{Action, Plan};
use crate::core::roster::index::Counts;
use crate::core::roster::instance::Instance;
use crate::core::state::{Recovery, Scope};
use crate::ids::{Incarnation, IncidentId, InstanceId, Role};
use crate::time::Time;

/// Incidents kept in memory; older ones are in the journal.
const KEPT: usize = 200;
/// Of these, so many keep their evidence, which can be long.
const EVIDENCE_KEPT: usize = 10;

impl Core {
    /// Opens an incident for a verdict and its plan.
    pub(in crate::core) fn open_incident(
        &mut self,
        verdict: &Verdict,
        plan: &Plan,
        cause: Option<Recurring>,
    ) -> IncidentId {
        let id = self.s.next_incident;
        self.s.next_incident = id.next();
        let failed = plan.action == Action::FailJob;
        let who = verdict.who;
        let life = self.s.instances.get(who);
        let struck = self.struck(verdict);
        let incident = Incident {
            id,
            who,
            judged: None,
            under: verdict.under,
            incarnation: life.map(|i| i.incarnation).unwrap_or_default(),
            rule: verdict.rule.name.to_owned(),
            reason: verdict.reason.clone(),
            cause,
            plan: plan.to_string(),
            step: self.s.committed,
            struck,
            verdict: self.now,
            attached: None,
            resumed: None,
            outcome: match failed {
                true => IncidentOutcome::Failed,
                false => IncidentOutcome::Recovering,
            },
            evidence: String::new(),
            testimony: Vec::new(),
            root: None,
            swept: Vec::new(),
            marks: self.marks_of(verdict, struck),
        };
        let text = format!(
            "{who}: {} ({}); {}",
            verdict.rule.name, verdict.reason, incident.plan
        );
        self.event(Severity::Fault, "incident", Some(who), text);
        self.s.incidents.open(incident);
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
            self.s.recoveries.begin(Recovery {
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
        let recoveries = &self.s.recoveries;
        let over = |i: &Incident| recoveries.get(i.id).is_none();
        self.s.incidents.keep(KEPT, over);
        self.s.incidents.keep_evidence(EVIDENCE_KEPT);
    }

    /// A task restart takes every recovery under way with it.
    fn escalate_open(&mut self) {
        self.s.recoveries.widen();
    }

    pub(in crate::core) fn incident_mut(&mut self, id: IncidentId) -> Option<&mut Incident> {
        self.s.incidents.get_mut(id)
    }

    /// Writes an incident to the journal as it is now.
    pub(in crate::core) fn record_incident(&mut self, id: IncidentId) {
        if let Some(incident) = self.s.incidents.get(id) {
            let record = Record::Incident(Box::new(incident.clone()));
            self.out.push(Output::Record(record));
        }
    }

    /// Notes a life that ends with the recoveries that cover its place.
    pub(in crate::core) fn sweep(&mut self, id: InstanceId, life: Incarnation) {
        let condemned = self.s.instances.get(id).and_then(|i| i.condemned);
        if let Some(condemned) = condemned {
            // Another fault restarts it, too: what was found of its hang until now is all there is.
            self.conclude(condemned.incident, false);
        }
        for incident in self.covering(id) {
            let known = self.s.incidents.get(incident);
            if known.is_some_and(|i| i.incarnation != life)
                && let Some(i) = self.incident_mut(incident)
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
    pub(in crate::core) fn mark(&mut self, id: InstanceId, name: &str) {
        for incident in self.covering(id) {
            self.mark_one(incident, name);
        }
    }

    /// Notes in every recovery of which all processes are started that they are.
    pub(in crate::core) fn mark_spawned(&mut self) {
        self.sync();
        if self.s.recoveries.is_empty() {
            return;
        }
        for recovery in &self.s.recoveries.to_vec() {
            if self.carried_out(recovery) && self.all_covered(recovery, |c| c.spawned) {
                self.mark_one(recovery.incident, "spawned");
            }
        }
    }

    fn mark_one(&mut self, id: IncidentId, name: &str) {
        let now = self.now;
        let known = self.s.incidents.get(id);
        if known.is_some_and(|i| i.marks.iter().all(|(n, _)| n != name))
            && let Some(i) = self.incident_mut(id)
        {
            i.marks.push((name.to_owned(), now));
        }
    }

    /// Whether all instances it restarts have come to that point.
    fn all_covered(&self, recovery: &Recovery, reached: fn(&Counts) -> u32) -> bool {
        let all = |role: Role| {
            let counts = self.index_now().counts(role);
            // A gang is whole or none; of the others, who has no slot is waited for by nobody.
            let absent = if role == Role::Trainer {
                0
            } else {
                counts.absent
            };
            reached(&counts) + absent == self.s.instances.count(role)
        };
        match recovery.scope {
            Scope::Instance => self.index_now().has(recovery.who, reached),
            Scope::Gang => all(Role::Trainer),
            Scope::Task => Role::ALL.into_iter().all(all),
        }
    }

    /// Whether the kill it began with was done; before it, the old process still counts as linked.
    fn carried_out(&self, recovery: &Recovery) -> bool {
        let who = self.s.instances.get(recovery.who);
        let condemned = who.and_then(|i| i.condemned);
        condemned.is_none_or(|c| c.incident != recovery.incident)
    }

    /// A place is given up: what was to bring it back is over.
    pub(in crate::core) fn close_recoveries_of(&mut self, id: InstanceId) {
        let (now, recoveries) = (self.now, &self.s.recoveries);
        let of = |r: &&Recovery| r.scope == Scope::Instance && r.who == id;
        let over: Vec<IncidentId> = recoveries.iter().filter(of).map(|r| r.incident).collect();
        for id in over {
            self.s.recoveries.end(id);
            if let Some(incident) = self.incident_mut(id) {
                incident.resumed = Some(now);
                incident.outcome = IncidentOutcome::Recovered;
            }
            self.record_incident(id);
        }
    }

    /// Notes which recoveries have their processes back, and closes those whose work goes on.
    pub(in crate::core) fn advance_recoveries(&mut self) {
        self.sync();
        if !std::mem::take(&mut self.recoveries_due) {
            return;
        }
        let now = self.now;
        for recovery in &self.s.recoveries.to_vec() {
            if !self.carried_out(recovery) || !self.all_covered(recovery, |c| c.linked) {
                continue;
            }
            self.mark_one(recovery.incident, "attached");
            let resumed = self.work_goes_on(recovery);
            let id = recovery.incident;
            let Some(known) = self.s.incidents.get(id) else {
                continue;
            };
            if !resumed && known.attached.is_some() {
                continue;
            }
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
            let who = incident.who;
            self.s.recoveries.end(id);
            self.record_incident(id);
            let text = format!("{who} is back at work {took} ms after the fault (incident {id})");
            self.event(Severity::Info, "recovered", Some(who), text);
        }
    }

    fn work_goes_on(&self, recovery: &Recovery) -> bool {
        let index = self.index_now();
        let admitted = |i: &Instance| {
            let admitted = self.s.weights.of(i.id).is_admitted();
            (admitted || i.quarantined && i.attached()) && i.suspect.is_none()
        };
        let serves = |role| index.counts(role).serves > 0;
        match (recovery.scope, recovery.who.role) {
            (Scope::Task, _) => {
                self.gang_works() && (serves(Role::Hybrid) || serves(Role::Rollout))
            }
            (Scope::Gang, _) | (_, Role::Trainer) => self.gang_works(),
            (Scope::Instance, Role::Hybrid | Role::Rollout) => {
                self.s.instances.get(recovery.who).is_some_and(admitted)
            }
            (Scope::Instance, Role::Agent) => {
                let agent = self.s.instances.get(recovery.who);
                let leases =
                    agent.map_or(0, |a| self.s.work.requests.table().leases(a.incarnation));
                leases > 0 || self.s.pause.is_some() || !self.s.work.requests.table().any_pending()
            }
        }
    }

    /// The trainer computes, or is complete and only waits for its batch.
    fn gang_works(&self) -> bool {
        let computes = self.index_now().counts(Role::Trainer).works > 0;
        self.s.gang.is_at_work(self.s.committed, computes)
    }
}
