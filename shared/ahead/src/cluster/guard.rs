//! The invariants, held on the way of long runs: a shadow model that is fed with the inputs and outputs of
//! the controller and shares nothing with it. An input costs it a look-up or two. (The search for faults has a
//! larger one, `robust_sim::world`, which also knows what is lost and late; I-9 is about weights, which no
//! simulation has.)
use super::Cluster;
use robust_shared::core::{CoreConfig, Incident, Input, Output, Policy, Record, RoleEvent};
use robust_shared::hash::IdMap;
use robust_shared::ids::{
    Generation, Incarnation, IncidentId, InstanceId, Role, Step, TrajectoryId, WeightVersion,
};
use std::collections::{BTreeMap, BTreeSet};

/// See the module's doc.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    broken: Option<String>,
    policy: Policy,
    batch: usize,
    pullers_per_source: usize,
    max_task_restarts: u32,
    highest: Incarnation,
    newest: Generation,
    /// Ranks that live, with their generation.
    ranks: BTreeMap<Incarnation, Generation>,
    committed: Step,
    published: Option<WeightVersion>,
    /// Who holds what, and what ended.
    leases: IdMap<TrajectoryId, Incarnation>,
    finished: IdMap<TrajectoryId, ()>,
    /// The version that an engine verified last.
    versions: IdMap<Incarnation, WeightVersion>,
    /// Whom an engine pulls from: its source, or the ranks.
    pulls: BTreeMap<Incarnation, Option<Incarnation>>,
    /// Who came to harm, and who ended.
    harmed: BTreeSet<Incarnation>,
    dead: IdMap<Incarnation, ()>,
    incidents: BTreeSet<IncidentId>,
    task_restarts: u32,
}

impl Guard {
    pub fn new(config: &CoreConfig) -> Box<Self> {
        Box::new(Self {
            broken: None,
            policy: config.policy,
            batch: config.prompts as usize * config.responses as usize,
            pullers_per_source: config.pullers_per_source as usize,
            max_task_restarts: config.max_task_restarts,
            highest: Incarnation(0),
            newest: Generation(0),
            ranks: BTreeMap::new(),
            committed: Step(0),
            published: None,
            leases: IdMap::default(),
            finished: IdMap::default(),
            versions: IdMap::default(),
            pulls: BTreeMap::new(),
            harmed: BTreeSet::new(),
            dead: IdMap::default(),
            incidents: BTreeSet::new(),
            task_restarts: 0,
        })
    }

    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// The first one counts.
    fn hold(&mut self, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.broken.get_or_insert_with(text);
        }
    }

    /// What the controller is about to be told.
    pub fn told(&mut self, input: &Input) {
        let Input::Role(who, event) = input else {
            return;
        };
        match event {
            RoleEvent::TrajectoryFinished { trajectory, .. }
                if self.leases.get(trajectory) == Some(who) =>
            {
                self.leases.remove(trajectory);
                self.finished.insert(*trajectory, ());
            }
            RoleEvent::Pulled {
                version, result, ..
            } => {
                self.pulls.remove(who);
                if result.is_ok() {
                    self.versions.insert(*who, *version);
                }
            }
            _ => {}
        }
    }

    /// A process came to harm: whatever the controller thinks of it from now on is true.
    pub fn struck(&mut self, who: Incarnation) {
        self.harmed.insert(who);
        // One that hangs reads from nobody, also before its kill, which waits for evidence.
        self.pulls.remove(&who);
    }

    /// A process is no more.
    pub fn ended(&mut self, who: Incarnation) {
        self.ranks.remove(&who);
        self.pulls.remove(&who);
        self.versions.remove(&who);
        self.dead.insert(who, ());
    }

    fn spawned(&mut self, id: InstanceId, who: Incarnation, generation: Generation) {
        let highest = self.highest;
        self.hold(who > highest, || {
            format!("I-1: {id} is started as {who}, {highest} was used already")
        });
        self.highest = highest.max(who);
        if id.role == Role::Trainer {
            let newest = self.newest;
            self.hold(generation >= newest, || {
                format!("I-1: {id} is started for {generation}, the newest is {newest}")
            });
            self.newest = newest.max(generation);
            self.ranks.insert(who, generation);
        }
    }

    fn called(&mut self, generation: Generation, ranks: &[Incarnation]) {
        let newest = self.newest;
        self.hold(generation == newest, || {
            format!("I-1: {generation} is called, the newest is {newest}")
        });
        let other = self.ranks.iter().find(|(_, of)| **of != generation);
        let other = other.map(|(who, of)| (*who, *of));
        self.hold(other.is_none(), || {
            format!("I-1: {generation} is called while {other:?} lives")
        });
        let of_it = ranks
            .iter()
            .all(|r| self.ranks.contains_key(r) || self.dead.contains_key(r));
        self.hold(of_it, || {
            format!("I-1: {ranks:?} are called as {generation}")
        });
    }

    fn is_trained_on(&mut self, step: Step, trajectories: &[TrajectoryId]) {
        let committed = self.committed;
        let distinct: BTreeSet<_> = trajectories.iter().collect();
        let ended = |t: &TrajectoryId| t.batch == step.0 && self.finished.contains_key(t);
        let whole = distinct.len() == self.batch && trajectories.len() == self.batch;
        let holds = step == committed.next() && whole && trajectories.iter().all(ended);
        self.hold(holds, || {
            format!(
                "I-3: step {step} after {committed} is trained on {} trajectories, {} of them different",
                trajectories.len(),
                distinct.len()
            )
        });
    }

    fn handed(&mut self, agent: Incarnation, t: TrajectoryId) {
        let again = self.finished.contains_key(&t) || t.batch <= self.committed.0;
        self.hold(!again, || {
            format!("I-2: {t} is finished and handed out again")
        });
        let holder = self.leases.insert(t, agent).filter(|h| *h != agent);
        let lives = holder.filter(|h| !self.dead.contains_key(h));
        self.hold(lives.is_none(), || {
            format!("I-2: {t} is handed to {agent} while {lives:?} holds it")
        });
    }

    fn ordered(&mut self, who: Incarnation, version: WeightVersion, source: Option<Incarnation>) {
        let has = self.versions.get(&who).copied();
        self.hold(has <= Some(version), || {
            format!("I-4: {who} is to pull {version} and has {has:?}")
        });
        let published = self.published;
        self.hold(published >= Some(version), || {
            format!("I-5: {who} is to pull {version}, published is {published:?}")
        });
        if self.harmed.contains(&who) {
            return;
        }
        self.pulls.insert(who, source);
        let same = self.pulls.values().filter(|of| **of == source).count();
        let most = self.pullers_per_source;
        self.hold(same <= most, || {
            format!("I-6: {same} pull from {source:?} (none: the ranks), {most} may")
        });
    }

    fn recorded(&mut self, record: &Record) {
        match record {
            Record::Committed {
                step,
                generation,
                trajectories,
                ..
            } => {
                self.is_trained_on(*step, trajectories);
                let newest = self.newest;
                self.hold(*generation == newest, || {
                    format!("I-1: step {step} is committed by {generation}, the newest is {newest}")
                });
                self.committed = *step;
                self.task_restarts = 0;
                for t in trajectories {
                    self.finished.remove(t);
                }
            }
            Record::Published { version } => {
                let (before, committed) = (self.published, self.committed);
                self.hold(before < Some(*version), || {
                    format!("I-4: {version} is published after {before:?}")
                });
                self.hold(version.0 <= committed.0, || {
                    format!("I-5: {version} is published, committed is {committed}")
                });
                self.published = Some(*version);
            }
            Record::Discarded { trajectories } => {
                // Only the baseline throws work away; what is too old for its step goes too.
                let old = |t: &TrajectoryId| t.batch > self.committed.0;
                let lawful = self.policy == Policy::Task || !trajectories.iter().any(old);
                self.hold(lawful, || {
                    format!("I-2: {} trajectories are thrown away", trajectories.len())
                });
                for t in trajectories {
                    self.finished.remove(t);
                    self.leases.remove(t);
                }
            }
            Record::Incident(incident) => self.judged(incident),
            _ => {}
        }
    }

    /// A verdict is recorded for the first time.
    fn judged(&mut self, incident: &Incident) {
        if !self.incidents.insert(incident.id) {
            return;
        }
        let (who, life) = (incident.who, incident.incarnation);
        let is_true = incident.under.is_some() || self.harmed.contains(&life);
        self.hold(is_true, || {
            format!(
                "I-8: {who} ({life}) is judged and did nothing wrong: {}",
                incident.reason
            )
        });
        if incident.plan.contains("whole task") {
            self.task_restarts += 1;
            let (many, most) = (self.task_restarts, self.max_task_restarts);
            // The one that would be one too many ends the job instead.
            self.hold(many <= most + 1, || {
                format!("I-7: {many} restarts of everything without a step between, {most} may be")
            });
        }
    }
}

impl Cluster {
    /// Looks at an output that is about to be acted on.
    pub(super) fn guard(&mut self, output: &Output) {
        let Some(guard) = &mut self.guard else {
            return;
        };
        match output {
            Output::Spawn {
                id,
                incarnation,
                generation,
                ..
            } => guard.spawned(*id, *incarnation, *generation),
            Output::Restore {
                generation,
                ranks,
                step,
            } => {
                guard.called(*generation, ranks);
                let committed = guard.committed;
                guard.hold(*step == committed, || {
                    format!("I-5: step {step} is restored, committed is {committed}")
                });
            }
            Output::TrainStep {
                generation,
                ranks,
                step,
                trajectories,
            } => {
                guard.called(*generation, ranks);
                guard.is_trained_on(*step, trajectories);
            }
            Output::Prepare {
                generation, ranks, ..
            }
            | Output::Publish {
                generation, ranks, ..
            } => guard.called(*generation, ranks),
            Output::AssignPull {
                puller,
                version,
                sources,
                from_trainer,
                ..
            } => {
                let relay = sources.first().copied().filter(|_| !from_trainer);
                guard.ordered(*puller, *version, relay);
            }
            Output::Dispatch {
                agent, trajectory, ..
            } => guard.handed(*agent, *trajectory),
            Output::Revoke { trajectory, .. } => drop(guard.leases.remove(trajectory)),
            Output::Record(record) => guard.recorded(record),
            _ => {}
        }
    }
}
