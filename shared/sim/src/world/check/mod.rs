//! The shadow model: what was really acknowledged, started, verified and killed, kept apart from
//! the core's own tables, and compared with everything it does.
//!
//! | looked at | holds |
//! | --- | --- |
//! | spawn | I-1 numbers only grow, generations too; I-7 budgets |
//! | call to the gang | I-1 newest lives only; I-3 whole batches; I-5 the committed state |
//! | record | I-3 steps in order, each batch once; I-4 versions grow; verdicts are true (I-8) |
//! | pull | I-4 forward only; I-5 published only; I-6 pullers of a source; what it has; no circle; one copy |
//! | route | I-4 verified and fit; never to a suspect |
//! | commit | nothing older than `max_staleness` |
//! | dispatch, stored turn | I-2 one lease, nothing generated again |
//! | kill | I-8 only what a true verdict covers |
//! | retire | I-8 only what an operator asked for, or for a rank's sake; drained, between steps |
//! | spawn | its slot is there, open and free; the gang's are of one kind |
//! | dispatch, step | nothing beyond the last step before a pause |
//! | set aside | on evidence, once; handed out no more, trained on by no step, consumed by its own |
//! | incident of a hang | the root is who was stopped; folded is what follows from the first, and counts nowhere |
//! | a node cordoned by itself | that many faults were there; nobody waits for a slot of it |
//! | request | refused: nothing changed; accepted: kept after every crash |
mod causes;
mod hangs;
mod lemons;
mod outputs;
mod places;
mod poison;
mod pulls;
mod verdicts;

use super::World;
use hangs::Hangs;
use lemons::Lemons;
use poison::Poisoning;
use robust_shared::core::{
    Core, CoreConfig, Incident, Input, NodeEvent, Policy, ProcessState, Record, Request, RoleEvent,
    SlotRef,
};
use robust_shared::hardware::Advice;
use robust_shared::ids::{
    Incarnation, IncidentId, InstanceId, NodeId, Step, TrajectoryId, WeightVersion,
};
use robust_shared::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use verdicts::Verdicts;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violation {
    /// When.
    pub at: Time,
    /// Which: `I-1` to `I-8`, or in a word.
    pub invariant: String,
    /// What was seen.
    pub text: String,
}

impl Violation {
    /// Its text without the numbers: two runs that break the same thing for the same reason mostly
    /// differ in nothing else, so failures are told apart by this.
    pub fn kind(&self) -> String {
        let mut kind = format!("{}: ", self.invariant);
        for c in self.text.chars() {
            match c.is_ascii_digit() {
                false => kind.push(c),
                true if kind.ends_with('#') => {}
                true => kind.push('#'),
            }
        }
        kind
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}: {}", self.invariant, self.at, self.text)
    }
}

/// The shadow model. See the module's doc.
#[derive(Clone, Debug)]
pub struct Checker {
    /// What broke first.
    pub violation: Option<Violation>,
    /// It is of the controller that counts.
    pub(super) is_read: bool,
    /// The last step committed durably.
    pub committed: Step,
    /// The last version published durably.
    pub published: Option<WeightVersion>,
    /// Numbers on record, whether or not a process was started with them.
    issued: BTreeSet<Incarnation>,
    /// The highest number given to a process.
    highest: Incarnation,
    /// Sizes that a batch may have: with the prompts asked for first, or by an update.
    shapes: BTreeSet<usize>,
    /// Versions that left the trainer.
    copied: BTreeSet<WeightVersion>,
    /// Devices failed under these.
    failed: BTreeSet<Incarnation>,
    /// Trajectories of a batch, by the highest group that was handed out.
    grids: BTreeMap<u64, usize>,
    /// Ranks of the gang that was called last.
    pub(super) ranks: u32,
    /// Ranks it may have too, as far as is known.
    pub(super) may_have: BTreeSet<u32>,
    /// The gang is being restarted on request.
    changing: bool,
    /// Slots that rollouts gave up for ranks just now.
    given: Vec<SlotRef>,
    /// Lives on devices that are about to fail, and their slots.
    announced: Vec<Incarnation>,
    drained: BTreeSet<SlotRef>,
    /// Nodes that said that they will leave, until they join again.
    leaving: BTreeSet<NodeId>,
    /// Those that just joined again, and who was told on them to move when he can: that holds.
    joined: Vec<NodeId>,
    moving: BTreeMap<InstanceId, SlotRef>,
    /// The last agent worker that each trajectory was handed to.
    handed: BTreeMap<TrajectoryId, Incarnation>,
    /// What the present life of the controller was told to be finished.
    finished: BTreeSet<TrajectoryId>,
    /// Rollouts being probed, by what was asked and answered.
    suspects: BTreeSet<Incarnation>,
    /// Tokens of an engine, as the controller knows them, and as far as that is on record.
    tokens: BTreeMap<Incarnation, u64>,
    tokens_on_record: BTreeMap<Incarnation, u64>,
    verdicts: Verdicts,
    pub(super) poisoning: Poisoning,
    hangs: Hangs,
    lemons: Lemons,
}

impl Checker {
    /// Nothing has happened.
    pub(super) fn new(config: &CoreConfig) -> Self {
        Self {
            violation: None,
            is_read: true,
            committed: Step(0),
            published: None,
            issued: BTreeSet::new(),
            highest: Incarnation(0),
            shapes: BTreeSet::from([shape(config)]),
            copied: BTreeSet::new(),
            failed: BTreeSet::new(),
            grids: BTreeMap::new(),
            ranks: config.ranks,
            may_have: BTreeSet::new(),
            changing: false,
            given: Vec::new(),
            announced: Vec::new(),
            drained: BTreeSet::new(),
            leaving: BTreeSet::new(),
            joined: Vec::new(),
            moving: BTreeMap::new(),
            handed: BTreeMap::new(),
            finished: BTreeSet::new(),
            suspects: BTreeSet::new(),
            tokens: BTreeMap::new(),
            tokens_on_record: BTreeMap::new(),
            verdicts: Verdicts::default(),
            poisoning: Poisoning::default(),
            hangs: Hangs::default(),
            lemons: Lemons::default(),
        }
    }

    /// An invariant does not hold; the first one counts.
    pub fn broken(&mut self, at: Time, invariant: &str, text: &str) {
        if !self.is_read {
            return;
        }
        let violation = || Violation {
            at,
            invariant: invariant.to_owned(),
            text: text.to_owned(),
        };
        self.violation.get_or_insert_with(violation);
    }

    fn hold(&mut self, at: Time, holds: bool, invariant: &str, text: impl FnOnce() -> String) {
        if !holds && self.is_read {
            self.broken(at, invariant, &text());
        }
    }

    /// A new life of the controller knows only what it is told again.
    pub(super) fn restored(&mut self) {
        self.finished.clear();
        self.suspects.clear();
        // The daemon died between a rollout's end and the start of the rank that gets its slot.
        self.given.clear();
        self.tokens.clone_from(&self.tokens_on_record);
        self.verdicts.restored();
        self.lemons.restored();
        self.hangs.restored(self.verdicts.newest());
    }

    /// The state is on disk: what the controller knows now, its next life knows too.
    pub(super) fn written(&mut self) {
        self.tokens_on_record.clone_from(&self.tokens);
        self.verdicts.written();
    }

    /// The controller wants a verdict recorded.
    pub(super) fn decided(&mut self, incident: &Incident) {
        self.verdicts.decided(incident);
        self.lemons.decided(incident);
    }

    /// A process is looked at for an incident.
    pub(super) fn looked_at(
        &mut self,
        incident: IncidentId,
        life: Incarnation,
        state: ProcessState,
    ) {
        self.hangs.looked_at(incident, life, state);
    }

    /// A stopped job goes on.
    pub(super) fn begin_anew(&mut self) {
        self.verdicts.begin_anew();
        // Its machines are new to it: it knows nothing of what they announced before.
        self.announced.clear();
        self.drained.clear();
        self.leaving.clear();
        self.moving.clear();
    }

    /// What the controller is about to be told; `stored` are the trajectories whose rewards are on disk.
    pub(super) fn told(&mut self, core: &Core, input: &Input, stored: &BTreeSet<TrajectoryId>) {
        self.verdicts.causes.told(input);
        match input {
            Input::Role(incarnation, RoleEvent::TrajectoryFinished { trajectory, .. }) => {
                // One that another brought to its end before is of no use, and neither is one that was thrown
                // away since.
                let is_news = stored.contains(trajectory) && self.finished.insert(*trajectory);
                if let Some(id) = core.is_current(*incarnation).filter(|_| is_news) {
                    self.verdicts.useful(id);
                }
            }
            Input::Role(incarnation, RoleEvent::Sampled { sample }) => {
                let Some(id) = core.is_current(*incarnation) else {
                    return;
                };
                let before = self.tokens.entry(*incarnation).or_default();
                if sample.tokens_total > *before && id.role.is_engine() {
                    *before = sample.tokens_total;
                    self.suspects.remove(incarnation);
                    self.verdicts.useful(id);
                }
            }
            Input::Role(incarnation, RoleEvent::Attached { .. }) => {
                self.verdicts.linked(*incarnation)
            }
            Input::Role(incarnation, RoleEvent::Probed { ok: true }) => {
                self.suspects.remove(incarnation);
            }
            Input::Node(_, NodeEvent::Hardware { finding, users, .. })
                if finding.advice() == Advice::Fault =>
            {
                self.failed.extend(users);
                let now = users.iter().filter_map(|old| core.state().successor(*old));
                self.failed.extend(now);
            }
            Input::Node(_, NodeEvent::Hardware { finding, users, .. })
                if finding.advice() == Advice::Drain =>
            {
                self.announced.extend(users);
                let now = users.iter().filter_map(|old| core.state().successor(*old));
                self.announced.extend(now);
            }
            Input::Node(node, NodeEvent::Leaving { .. }) => {
                self.leaving.insert(*node);
            }
            // What it said before it left holds no more, but for those who were told.
            Input::NodeJoined { node, .. } => {
                let node = core.node_id(&node.name);
                let left = node.filter(|node| self.leaving.remove(node));
                self.joined.extend(left);
            }
            Input::Operator(_, Request::Update { config, .. }) => {
                self.shapes.insert(shape(config));
            }
            Input::Role(incarnation, RoleEvent::Exited { .. }) => {
                self.tokens.remove(incarnation);
                self.suspects.remove(incarnation);
            }
            _ => {}
        }
    }

    /// The controller took in what it was told.
    pub(super) fn handled(&mut self, core: &Core) {
        self.verdicts.keep_places(|who| core.node_of(who).is_ok());
    }

    /// A trajectory is handed out.
    pub(super) fn dispatched(&mut self, trajectory: TrajectoryId, responses: u32) {
        let size = (trajectory.group as usize + 1) * responses as usize;
        let grid = self.grids.entry(trajectory.batch).or_default();
        *grid = (*grid).max(size);
    }

    /// Whether a batch of this size has all that was handed out for it, and a size it may have.
    fn is_whole(&self, batch: u64, size: usize) -> bool {
        self.shapes.contains(&size) && self.grids.get(&batch).is_none_or(|grid| *grid == size)
    }

    /// Whether all of a batch was set aside.
    pub(in super::super) fn has_nothing_left(&self, batch: u64) -> bool {
        let aside = self.poisoning.of_batch(batch);
        aside > 0 && self.is_whole(batch, aside)
    }

    /// A turn reaches the store, after the lease was looked at.
    pub(super) fn appended(
        &mut self,
        now: Time,
        trajectory: TrajectoryId,
        turn: u32,
        acknowledged: u32,
        over: bool,
    ) {
        self.hold(now, turn == acknowledged && !over, "I-2", || {
            format!("turn {turn} of {trajectory} is generated again; {acknowledged} are stored")
        });
    }
}

fn shape(config: &CoreConfig) -> usize {
    config.prompts as usize * config.responses as usize
}

impl World {
    /// A record is durable.
    pub(super) fn check_record(&mut self, record: &Record) {
        let now = self.now;
        match record {
            Record::Committed {
                step,
                generation,
                trajectories,
                ..
            } => {
                self.check_consumed(*step, trajectories);
                let newest = self.gang.newest;
                let keeps_own_state = self.config.own_loop.is_some_and(|own| !own.keeps_state);
                let checker = &mut self.checker;
                checker.hold(now, *step == checker.committed.next(), "I-3", || {
                    format!("step {step} is committed out of order")
                });
                checker.hold(now, *generation == newest, "I-1", || {
                    format!("step {step} is committed by {generation}, the newest is {newest}")
                });
                checker.committed = *step;
                checker.verdicts.committed(*generation, keeps_own_state);
            }
            Record::Published { version } => {
                let checker = &mut self.checker;
                let (before, committed) = (checker.published, checker.committed);
                checker.hold(now, before < Some(*version), "I-4", || {
                    format!("{version} is published after {before:?}")
                });
                checker.hold(now, version.0 <= committed.0, "I-5", || {
                    format!("{version} is published, committed is {committed}")
                });
                checker.published = Some(*version);
            }
            Record::Incident(incident) => self.check_incident(incident),
            Record::Discarded { trajectories } => self.discard(trajectories),
            Record::SetAside {
                trajectory,
                engines,
            } => self.check_set_aside(*trajectory, engines),
            Record::Armed {
                number,
                armed: false,
                ..
            } => self.disarmed(*number),
            Record::Issued { id, incarnation } => {
                self.checker.issued.insert(*incarnation);
                self.checker.verdicts.causes.issued(*id);
            }
            // One that waited for a start-up goes with the life that it was waiting for.
            Record::Armed { number, .. } => self.carried(*number),
            Record::Quarantined { .. } | Record::Revised { .. } | Record::Interval(_) => {}
        }
    }

    /// Thrown away on purpose, which only the baseline does, what ended too old to train on, and what an
    /// environment cannot go on from; it may be handed out anew.
    fn discard(&mut self, trajectories: &[TrajectoryId]) {
        let baseline = self.config.policy == Policy::Task;
        let stale = |t: &TrajectoryId| self.stored.contains(t) && self.is_too_old(*t);
        let diverged = |t: &TrajectoryId| self.diverged.contains(t);
        let lawful = |t: &TrajectoryId| stale(t) || diverged(t);
        let lawful = baseline || trajectories.iter().all(lawful);
        self.must(lawful, "I-2", || {
            format!("{} trajectories are thrown away", trajectories.len())
        });
        for t in trajectories {
            self.stored.remove(t);
            self.turns.remove(t);
            self.oldest.remove(t);
            self.daemon.leases.remove(t);
            self.checker.finished.remove(t);
        }
    }

    /// Whether its step may not train on it, by what is stored.
    fn is_too_old(&self, t: TrajectoryId) -> bool {
        let old = (t.batch - 1).saturating_sub(self.oldest_of(t).0);
        self.config.max_staleness.is_some_and(|most| old > most)
    }

    /// What its step was trained on, and what was set aside of it.
    fn check_consumed(&mut self, step: Step, trajectories: &[TrajectoryId]) {
        let poisoning = &self.checker.poisoning;
        let (aside, trained): (Vec<_>, Vec<_>) = trajectories
            .iter()
            .copied()
            .partition(|t| poisoning.is_set_aside(*t));
        let all = poisoning.of_batch(step.0) == aside.len();
        self.must(all, "I-3", || {
            format!("step {step} consumes only {aside:?} of those set aside")
        });
        self.check_batch(step, &trained);
    }

    /// Exactly the batch of the step but for what was set aside, each once, all stored (I-3), none too
    /// old.
    fn check_batch(&mut self, step: Step, trajectories: &[TrajectoryId]) {
        if self.config.own_loop.is_some() {
            return self.must(trajectories.is_empty(), "own loop", || {
                format!("step {step} of a loop of its own consumes {trajectories:?}")
            });
        }
        let distinct: BTreeSet<_> = trajectories.iter().collect();
        let stored = trajectories.iter().all(|t| self.stored.contains(t));
        let of_step = trajectories.iter().all(|t| t.batch == step.0);
        let size = distinct.len() + self.checker.poisoning.of_batch(step.0);
        let whole = distinct.len() == trajectories.len() && self.checker.is_whole(step.0, size);
        let now = self.now;
        let too_old = trajectories.iter().find(|t| self.is_too_old(**t)).copied();
        self.must(too_old.is_none(), "staleness", || {
            format!("step {step} trains on {too_old:?}, which is too old")
        });
        self.checker
            .hold(now, stored && of_step && whole, "I-3", || {
                format!("step {step} consumes {trajectories:?}")
            });
    }

    /// All outputs of an input are done.
    pub(super) fn check_settled(&mut self) {
        let older = |(g, ranks): (&robust_shared::ids::Generation, &Vec<Incarnation>)| {
            let heard = |p: &super::Proc| p.alive && !p.over && self.machines.linked(p.machine);
            let alive = ranks.iter().any(|r| self.procs.get(r).is_some_and(heard));
            (alive && *g != self.gang.newest).then_some(*g)
        };
        if let Some(older) = self.gang.ranks.iter().find_map(older) {
            let text = format!("{older} is alive beside {}", self.gang.newest);
            self.checker.broken(self.now, "I-1", &text);
        }
        self.check_places();
    }
}
