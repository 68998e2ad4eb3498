//! Verdicts and what they cost, held against the truth (I-7, I-8).
use super::super::{Proc, Start, World};
use super::causes::Causes;
use robust_shared::core::{Incident, Policy, Taken};
use robust_shared::ids::{Generation, Incarnation, IncidentId, InstanceId, Role};
use robust_shared::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a plan restarts, by its sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Instance,
    Gang,
    Task,
    /// Nothing: the job fails.
    Job,
}

impl Scope {
    fn of(plan: &str) -> Self {
        match plan {
            p if p.starts_with("restart the whole task") => Scope::Task,
            p if p.starts_with("restart the trainer gang") => Scope::Gang,
            p if p.starts_with("fail the job") => Scope::Job,
            _ => Scope::Instance,
        }
    }
}

/// Failures of one place in a row by one rule.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    count: u32,
    since: Time,
    at: Time,
}

/// Failures in a row, by rule and whether the process ever linked.
type Kind = (String, bool);

/// Rows of every place.
type Rows = BTreeMap<InstanceId, BTreeMap<Kind, Row>>;

/// Verdicts so far, as far as they still count.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdicts {
    /// Those whose recovery is not over.
    open: BTreeMap<IncidentId, (InstanceId, Scope)>,
    /// Those that fell and are not on record yet: their kills need not wait for that.
    decided: BTreeMap<IncidentId, (InstanceId, Scope)>,
    newest: IncidentId,
    /// What processes really died of.
    pub(super) causes: Causes,
    rows: Rows,
    /// As they are on record. That one did something useful ends a row, but is no record of its own: a
    /// controller that dies before the next one counts on as if it had not been.
    rows_on_record: Rows,
    /// Incidents that count in a row.
    counted: BTreeMap<IncidentId, (InstanceId, Kind, Time)>,
    /// Incidents that a trajectory is to blame for.
    charged: BTreeSet<IncidentId>,
    /// Lives that the controller saw linked. It cannot know of a link that it heard of after its last
    /// record before it died: to its next life such a process ended in its start-up.
    linked: BTreeSet<Incarnation>,
    /// Those of them that are on record.
    on_record: BTreeSet<Incarnation>,
    /// Since the last commit that was progress.
    all: u32,
    tasks: u32,
    /// The gang that committed last.
    stepped: Option<Generation>,
    /// A step was committed since the job began, or went on after its end.
    proven: bool,
    /// The last gang of which a rank failed.
    failed: Option<Generation>,
    /// Gangs that were told to train.
    training: BTreeSet<Generation>,
    /// Those of them of which the controller knows by its records.
    training_on_record: BTreeSet<Generation>,
}

impl Verdicts {
    /// The controller hears that a process linked.
    pub fn linked(&mut self, life: Incarnation) {
        self.linked.insert(life);
    }

    /// A gang is told to train.
    pub fn trains(&mut self, gang: Generation) {
        self.training.insert(gang);
    }

    /// What the controller knows is on record.
    pub fn written(&mut self) {
        self.on_record.clone_from(&self.linked);
        self.training_on_record.clone_from(&self.training);
        self.rows_on_record.clone_from(&self.rows);
        self.causes.written();
    }

    /// A verdict fell.
    pub fn decided(&mut self, incident: &Incident) {
        if incident.id > self.newest {
            let scope = Scope::of(&incident.plan);
            self.decided.insert(incident.id, (incident.who, scope));
        }
    }

    /// The last incident on record.
    pub fn newest(&self) -> IncidentId {
        self.newest
    }

    /// How many of a rule are counted in a row, of processes that linked and of those that did not.
    fn in_a_row(&self, who: InstanceId, rule: &str) -> u32 {
        let rows = self.rows.get(&who).into_iter().flatten();
        let of_rule = rows.filter(|((of, _), _)| of == rule);
        of_rule.map(|(_, row)| row.count).sum()
    }

    /// A new life of the controller knows what was on record.
    pub fn restored(&mut self) {
        self.decided.clear();
        self.linked.clone_from(&self.on_record);
        self.training.clone_from(&self.training_on_record);
        self.rows.clone_from(&self.rows_on_record);
        self.causes.restored();
    }

    /// A stopped job goes on: nothing counts any more.
    pub fn begin_anew(&mut self) {
        self.rows.clear();
        self.causes.begin_anew();
        (self.all, self.tasks) = (0, 0);
        self.proven = false;
    }

    /// A death was not the engine's fault: it counts no more, or will not.
    pub fn charge(&mut self, engine: &Taken) {
        self.causes.charge(engine);
        self.charged.insert(engine.incident);
        let Some((who, kind, at)) = self.counted.remove(&engine.incident) else {
            return;
        };
        let row = self.rows.get_mut(&who).and_then(|rows| rows.get_mut(&kind));
        if let Some(row) = row.filter(|row| row.since <= at) {
            row.count = row.count.saturating_sub(1);
        }
    }

    /// Counts an incident; how many that makes in a row, and of all kinds.
    fn count(
        &mut self,
        incident: &Incident,
        linked: bool,
        now: Time,
        window: Duration,
    ) -> (u32, u32) {
        let kind = (incident.rule.clone(), linked);
        // Of ranks it is the gang that fails, whichever of them does.
        let who = match incident.who {
            InstanceId {
                role: Role::Trainer,
                ..
            } => super::super::id(Role::Trainer, 0),
            other => other,
        };
        let rows = self.rows.entry(who).or_default();
        let row = rows.entry(kind.clone()).or_default();
        if now.since(row.at) > window || row.count == 0 {
            (row.count, row.since) = (0, now);
        }
        if !self.charged.contains(&incident.id) {
            (row.count, row.at) = (row.count + 1, now);
            self.counted.insert(incident.id, (who, kind, now));
        }
        (row.count, rows.values().map(|row| row.count).sum())
    }

    /// Only these places are there. Whoever comes where one was given up begins its own row.
    pub fn keep_places(&mut self, is_there: impl Fn(InstanceId) -> bool) {
        self.rows.retain(|who, _| is_there(*who));
        self.causes.keep_places(is_there);
    }

    /// An instance did something useful.
    pub fn useful(&mut self, id: InstanceId) {
        self.rows.remove(&id);
        self.causes.useful(id);
    }

    /// A step was committed. Of a gang whose program keeps its state to itself the first one may be
    /// what the gang before had done already: it proves nothing, or a program that dies after every
    /// first step would be restarted for ever (I-7).
    pub fn committed(&mut self, by: Generation, keeps_own_state: bool) {
        let is_its_first = self.stepped.replace(by) != Some(by);
        self.proven = true;
        if !(keeps_own_state && is_its_first) {
            (self.all, self.tasks) = (0, 0);
            self.rows.retain(|who, _| who.role != Role::Trainer);
            self.causes.useful(super::super::id(Role::Trainer, 0));
        }
    }
}

/// How long after its recovery a fault still explains a verdict: samples, evidence and a slow store
/// lie between.
const ECHO: Duration = Duration::from_secs(10);

impl World {
    /// An incident is on record.
    pub(super) fn check_incident(&mut self, incident: &Incident) {
        self.check_root(incident);
        let verdicts = &mut self.checker.verdicts;
        if incident.resumed.is_some() {
            verdicts.open.remove(&incident.id);
        }
        if incident.id <= verdicts.newest {
            return;
        }
        verdicts.newest = incident.id;
        verdicts.decided.remove(&incident.id);
        let scope = Scope::of(&incident.plan);
        if scope == Scope::Task {
            verdicts.open.clear();
        }
        verdicts.open.insert(incident.id, (incident.who, scope));
        let (who, life) = (incident.who, incident.incarnation);
        let sick = self.is_sick(who, life) || incident.rule == "corruption" && self.damaging() > 1;
        self.must(sick, "I-8", || {
            format!(
                "{who} {life} is well, and yet: {} ({})",
                incident.rule, incident.reason
            )
        });
        match self.is_folded(incident) {
            true => {
                let counted = self.checker.verdicts.in_a_row(who, &incident.rule);
                self.check_uncounted(incident, counted);
            }
            false => self.check_cost(incident, scope),
        }
    }

    /// Neither too little (I-7) nor too much (I-8).
    fn check_cost(&mut self, incident: &Incident, scope: Scope) {
        let recurs = self.check_cause(incident);
        let (who, now, plan) = (incident.who, self.now, &incident.plan);
        let budget = self.config.budgets.general;
        let (window, borne) = (budget.window, budget.max);
        let verdicts = &mut self.checker.verdicts;
        let linked = verdicts.linked.contains(&incident.incarnation);
        // The end of one that never linked is another kind of fault than that of one that did.
        let (failures, ever) = verdicts.count(incident, linked, now, window);
        verdicts.all += 1;
        verdicts.tasks += u32::from(scope == Scope::Task);
        let (all, tasks) = (verdicts.all, verdicts.tasks);
        let most = self.config.max_task_restarts;
        let budget = match scope {
            Scope::Instance | Scope::Gang => failures <= borne,
            Scope::Task => tasks <= most,
            Scope::Job => true,
        };
        self.must(budget, "I-7", || {
            format!("{who} failed {failures} times, {tasks} task restarts: {plan}")
        });
        let by_start = self.procs.get(&incident.incarnation);
        let by_start = by_start.is_none_or(|p| p.start != Start::Fine);
        let dear = match scope {
            Scope::Task => self.config.policy == Policy::Role && !by_start,
            Scope::Job => !by_start && tasks < most,
            Scope::Instance | Scope::Gang => false,
        };
        let first_step = who.role == Role::Trainer && !self.checker.verdicts.proven;
        let same = self.config.same_cause > 0 && recurs >= self.config.same_cause;
        let often = all >= 2 || ever > borne || same;
        // What a gang commits after its verdict, while its stacks are taken, is no step of the next one's.
        let gang = self.procs.get(&incident.incarnation).map(|p| p.generation);
        let verdicts = &mut self.checker.verdicts;
        let again = who.role == Role::Trainer
            && verdicts.failed.is_some_and(|failed| Some(failed) < gang)
            && verdicts.stepped != gang;
        if who.role == Role::Trainer {
            verdicts.failed = gang;
        }
        let explained = !dear || often || (first_step || again) && scope == Scope::Task;
        self.must(explained, "I-8", || {
            format!("for its first fault {who} costs: {plan}")
        });
        // A program that tells no steps has no first one.
        let has_steps = self.config.own_loop.is_none_or(|own| own.commits);
        let trained = gang.is_some_and(|gang| self.checker.verdicts.training.contains(&gang));
        let cheap = matches!(scope, Scope::Instance | Scope::Gang);
        let too_cheap = first_step && has_steps && trained && cheap;
        self.must(!too_cheap, "I-7", || {
            format!("{who} failed in the job's first step, which costs: {plan}")
        });
    }

    /// Only what an open verdict covers is killed (I-8), on record already or not.
    pub(super) fn check_kill(&mut self, id: InstanceId, incarnation: Incarnation) {
        let covers = |(who, scope): &(InstanceId, Scope)| match scope {
            Scope::Instance => *who == id,
            Scope::Gang => id.role == Role::Trainer,
            Scope::Task => true,
            Scope::Job => false,
        };
        let verdicts = &self.checker.verdicts;
        let mut fallen = verdicts.open.values().chain(verdicts.decided.values());
        let covered = fallen.any(covers) || self.is_surplus(id);
        self.must(covered, "I-8", || {
            format!("{id} {incarnation} is killed in health")
        });
    }

    /// The truth: whether something is wrong with this life; a rank's gang is sick as a whole.
    fn is_sick(&self, id: InstanceId, life: Incarnation) -> bool {
        let failed = |life: &Incarnation| self.checker.failed.contains(life);
        let unwell = |life: &Incarnation| {
            failed(life) || self.procs.get(life).is_none_or(|p| self.is_unwell(p))
        };
        match id.role {
            Role::Trainer => {
                let gang = self.gang.ranks.values().find(|ranks| ranks.contains(&life));
                unwell(&life) || gang.is_some_and(|ranks| ranks.iter().any(unwell))
            }
            _ => unwell(&life),
        }
    }

    /// Engines that serve damaged weights, or did lately: one that gets nothing else looks broken itself.
    fn damaging(&self) -> usize {
        let engines = self.procs.values().filter(|p| p.id.role.is_engine());
        engines.filter(|p| p.corrupt || self.was_unwell(p)).count()
    }

    fn was_unwell(&self, p: &Proc) -> bool {
        p.well_at + ECHO > self.heard_until() && p.well_at.0 > 0
    }

    fn is_unwell(&self, p: &Proc) -> bool {
        let apart = self.now.since(p.linked_at);
        let grace = self.config.rules.link_lost.window.of(p.id.role);
        let unlinked = !p.linked && apart >= grace;
        let echo = self.was_unwell(p);
        let broken = p.raised || p.corrupt || p.slow > 1;
        let node = self.machines.all.get(p.machine).filter(|_| p.machine > 0);
        let apart = node.is_some_and(|m| {
            let echo = m.well_at + ECHO > self.heard_until() && m.well_at.0 > 0;
            m.trouble.is_some() || echo || !self.machines.linked(p.machine)
        });
        let tool = p.tool_broken + ECHO > self.heard_until() && p.tool_broken.0 > 0;
        !p.serves() || tool || p.start != Start::Fine || broken || unlinked || echo || apart
    }
}
