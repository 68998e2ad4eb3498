//! Incidents: opened by a verdict and its plan, and told of from there on.
use super::{Recover, Recovery, Scope};
use crate::core::detect::Verdict;
use crate::core::effects::{Cx, Effects};
use crate::core::output::{Record, Severity};
use crate::core::recover::cause::Recurring;
use crate::core::recover::incident::{Incident, IncidentOutcome};
use crate::core::recover::restart::{Action, Plan};
use crate::core::roster::instance::Restarted;
use crate::core::roster::instances::Instances;
use crate::ids::{Incarnation, IncidentId, InstanceId, Role, Step};
use crate::time::Time;

/// Incidents kept in memory; older ones are in the journal.
const KEPT: usize = 200;
/// Of these, so many keep their evidence, which can be long.
const EVIDENCE_KEPT: usize = 10;

/// What an incident is opened for.
#[derive(Clone, Debug)]
pub struct Opened<'a> {
    /// What was found.
    pub verdict: &'a Verdict,
    /// What is done about it.
    pub plan: &'a Plan,
    /// What it came of, and how often that was met.
    pub cause: Option<Recurring>,
    /// What ran on it is to blame.
    pub innocent: bool,
    /// The incarnation that failed.
    pub incarnation: Incarnation,
    /// When the fault struck ([`struck`]).
    pub struck: Time,
    /// The last committed step.
    pub committed: Step,
}

impl Recover {
    /// Opens an incident for a verdict and its plan.
    pub fn open(&mut self, cx: &mut Cx<'_>, opened: Opened<'_>) -> IncidentId {
        let Opened { verdict, plan, .. } = opened;
        let (id, who) = (self.next_incident, verdict.who);
        self.next_incident = id.next();
        let failed = plan.action == Action::FailJob;
        let incident = Incident {
            id,
            who,
            judged: None,
            under: verdict.under,
            innocent: opened.innocent,
            incarnation: opened.incarnation,
            rule: verdict.rule.name.to_owned(),
            reason: verdict.reason.clone(),
            cause: opened.cause,
            plan: plan.to_string(),
            step: opened.committed,
            struck: opened.struck,
            verdict: cx.now,
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
            marks: marks_of(verdict, opened.struck, cx.now),
        };
        let text = format!(
            "{who}: {} ({}); {}",
            verdict.rule.name, verdict.reason, incident.plan
        );
        cx.event(Severity::Fault, "incident", Some(who), text);
        self.incidents.open(incident);
        self.trim();
        if plan.action == Action::RestartTask {
            // It takes every recovery under way with it.
            self.recoveries.widen();
        }
        let scope = match plan.action {
            Action::RestartInstance => Scope::Instance,
            Action::RestartGang => Scope::Gang,
            Action::RestartTask | Action::FailJob => Scope::Task,
        };
        if !failed {
            self.recoveries.begin(Recovery {
                incident: id,
                who,
                scope,
            });
        }
        id
    }

    /// What ran on whoever failed is to blame after all.
    pub fn is_innocent(&mut self, id: IncidentId) {
        if let Some(incident) = self.incidents.get_mut(id) {
            incident.innocent = true;
        }
    }

    fn trim(&mut self) {
        let recoveries = &self.recoveries;
        let over = |i: &Incident| recoveries.get(i.id).is_none();
        self.incidents.keep(KEPT, over);
        self.incidents.keep_evidence(EVIDENCE_KEPT);
    }

    /// Writes an incident to the journal as it is now.
    pub fn record(&self, out: &mut Effects, id: IncidentId) {
        if let Some(incident) = self.incidents.get(id) {
            out.record(Record::Incident(Box::new(incident.clone())));
        }
    }

    /// The first incident of what an incident belongs to.
    pub fn first_of(&self, id: IncidentId) -> IncidentId {
        let under = self.incidents.get(id).and_then(|i| i.under);
        under.unwrap_or(id)
    }

    /// Why a fault replaces the process of a place.
    pub fn reason_to_replace(&self, id: InstanceId, now: Time) -> Restarted {
        let covering = self.recoveries.iter().filter(|r| r.covers(id));
        let incident = covering.map(|r| r.incident).max();
        let found = incident.and_then(|number| self.incidents.get(number));
        let why = match found {
            Some(incident) if incident.who == id => incident.rule.clone(),
            Some(incident) => format!("{} of {}", incident.rule, incident.who),
            None => "a fault".to_owned(),
        };
        Restarted {
            at: now,
            why,
            // Counted as a fault, whichever incident it was.
            incident: Some(incident.unwrap_or_default()),
        }
    }
}

/// When the fault struck, as well as it is known. A fault that nobody injected shows itself in the exit, or
/// in the silence since the last sign of life.
pub fn struck(instances: &Instances, verdict: &Verdict, now: Time) -> Time {
    let life = instances.get(verdict.who);
    let shown = verdict.exited.or(life.map(|i| i.last_sign()));
    let struck = life.and_then(|i| i.struck()).or(shown);
    let struck = gang_struck(instances, verdict.who).or(struck);
    struck.unwrap_or(now).min(now)
}

/// A hang of one rank stops its peers too, so the instant of an injected one counts for the gang, whichever
/// rank the rule named.
fn gang_struck(instances: &Instances, who: InstanceId) -> Option<Time> {
    let ranks = instances.role(who.role);
    let ranks = ranks.filter(|_| who.role == Role::Trainer);
    ranks.filter_map(|i| i.struck()).min()
}

/// The stages that are over with the verdict: what the kernel took to end the process, and what it took to
/// see that.
fn marks_of(verdict: &Verdict, struck: Time, now: Time) -> Vec<(String, Time)> {
    let within = |at: Time| at.clamp(struck, now);
    let exited = verdict.exited.map(|at| ("exited".to_owned(), within(at)));
    let seen = [("seen".to_owned(), now)];
    exited.into_iter().chain(seen).collect()
}
