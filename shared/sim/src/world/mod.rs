//! A small world in virtual time: it plays the daemon's driver, its store, the links and every
//! process, and a checker holds the invariants against what really happens. The same seed gives the
//! same run.
//!
//! ```text
//!  queue (time, number) ─► happen ─► feed ─► Core::handle ─► outputs ─┬─ before the first record, or
//!     ▲                               │ daemon down: lost             │  waits for none: at once
//!     │                               │ daemon writing: waits         └─ the rest: when the write
//!     └───────── deeds of processes ◄─┴────────────────────────────────  is durable, or lost
//! ```
//! The daemon is modelled as its driver is: outputs up to the first record leave at once, with those
//! that wait for no record, the rest when all records of the batch and the core's state are durable in
//! one piece, and nothing is handled meanwhile. A crash loses what was not durable with all that follows
//! from it; what was killed on a verdict that is lost stays dead.
//!
//! Other nodes (`machines`, `streams`) have daemons of their own, which can be cut off, stopped or lost
//! with their processes; operators (`office`) ask for changes and remember what they were promised.
mod act;
mod agents;
mod ailment;
mod check;
mod controllers;
mod daemon;
mod ghosts;
mod journal;
mod links;
mod machines;
mod office;
mod outside;
mod process;
mod pulls;
mod samples;
mod streams;
mod strike;
mod switch;
mod timing;
mod tools;
mod trainer;

pub use ailment::Ailment;
pub use check::{Checker, Violation};
pub use controllers::{Apart, Which};
pub use journal::Journal;
pub use process::{Proc, Start, Work};
pub use timing::{Span, Timing, ms};

use super::coverage::Coverage;
use daemon::Daemon;
use machines::Machines;
use office::Office;
use process::Order;
use robust_ahead::dice::Dice;
use robust_shared::core::{Core, CoreConfig, Input, Outcome, Output, SlotRef};
use robust_shared::ids::{
    Generation, Incarnation, InstanceId, Role, Step, TrajectoryId, WeightVersion,
};
use robust_shared::time::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use trainer::{Call, GangWork};

/// A place by name.
pub fn id(role: Role, index: u32) -> InstanceId {
    InstanceId { role, index }
}

/// Everything that is due at some time.
#[derive(Clone, Debug)]
enum Happening {
    /// The daemon's own senses: exits, evidence; and what comes late or twice.
    Feed(Input),
    /// A process tries to link.
    Link(Incarnation),
    /// The daemon notices that a link is broken.
    LinkEnds(Incarnation),
    /// A message of a process arrives, if its link still stands.
    Said(Incarnation, u64, Input),
    /// A message to a process arrives, if its link still stands.
    Told(Incarnation, u64, Order),
    /// A process that came up badly ends.
    Dies(Incarnation, i32),
    /// A process ends of what it has.
    DiesOf(Incarnation, Ailment),
    /// A stopped or slowed process goes on as before.
    Heals(Incarnation),
    Gang(Generation, Call, u32),
    Pull(Incarnation, u64),
    Probed(Incarnation),
    Switch(Incarnation, bool, u32),
    GoesOn(u32),
    Turn(agents::Doing),
    Generated(agents::Doing, Incarnation, u64),
    Answered(agents::Doing, u64, Option<WeightVersion>),
    Append(agents::Doing),
    /// An agent worker brings a turn again that was not answered, after so many others.
    AppendAgain(agents::Doing, u32),
    /// Something reaches a controller in one of its lives.
    Controller(usize, u32, controllers::Event),
    /// A controller's request is at etcd.
    AtEtcd(usize, u64, controllers::Ask),
    /// A controller's request is at the object store.
    AtStore(usize, u64, controllers::Work),
    LeaseEnds(u64),
    /// etcd has a majority again.
    Quorum,
    /// What cut a controller off is over.
    Together(usize, u64),
    /// A node hears nothing of its leader for long.
    Silent(usize, u64),
    /// An agent worker has tried its tool as often as it may.
    ToolTried(agents::Doing),
    Samples,
    Ghosts(InstanceId),
    /// A process's start or end, as its node sees it.
    Reported(usize, Input),
    /// A process that was asked to end does.
    Retires(Incarnation),
    /// What a node says arrives, if its stream still stands.
    NodeSaid(usize, u64, Input),
    /// What a node is told arrives, if its stream still stands.
    Ordered(usize, u64, machines::NodeOrder),
    Beat(usize),
    Join(usize),
    NodeBack(usize),
    /// One that said that it would.
    NodeLeaves(usize, Duration),
    Mend,
    Durable(u32),
    DaemonBack(u32),
}

/// The world. See the module's doc.
#[derive(Clone, Debug)]
pub struct World {
    /// What the controller knows of the job.
    pub config: CoreConfig,
    /// How long things take; may be changed on the way.
    pub timing: Timing,
    /// The controller.
    pub core: Core,
    /// Virtual time.
    pub now: Time,
    /// Every process that has not been seen to end.
    pub procs: BTreeMap<Incarnation, Proc>,
    /// Training calls in the order they were issued: which gang, which step, its batch.
    pub trained: Vec<(Generation, Step, Vec<TrajectoryId>)>,
    /// Requests routed: when and whereto.
    pub routed_at: Vec<(Time, InstanceId)>,
    /// Steps after which the program of a trainer with a loop of its own ends.
    pub program_ends: u64,
    /// How the job ended.
    pub outcome: Option<Outcome>,
    /// What is written down.
    pub journal: Journal,
    /// The shadow model.
    pub checker: Checker,
    /// Outputs acted on so far.
    pub outputs: u64,
    /// Inputs given to the core so far.
    pub inputs: u64,
    /// Which states they met.
    pub coverage: Coverage,
    /// After every input the core's index is compared with a full scan.
    pub check_core: bool,
    /// After every input nobody may wait for nothing.
    pub check_progress: bool,
    seed: u64,
    dice: Dice,
    queue: BTreeMap<(Time, u64), Happening>,
    serial: u64,
    daemon: Daemon,
    machines: Machines,
    /// Several controllers, where there are.
    ha: controllers::Controllers,
    office: Office,
    /// Outputs that were looked at before they are acted on.
    taken: Vec<Output>,
    /// The daemon that starts goes on with a stopped job.
    begun_anew: bool,
    /// The newest life started at each place.
    places: BTreeMap<InstanceId, Incarnation>,
    /// The slot it was started in.
    homes: BTreeMap<InstanceId, SlotRef>,
    /// The life before that.
    before: BTreeMap<InstanceId, Incarnation>,
    gang: GangWork,
    /// Starts to come that do not go well, by place.
    doomed: BTreeMap<InstanceId, Vec<Start>>,
    /// Turns that are stored, by trajectory: what was acknowledged.
    turns: BTreeMap<TrajectoryId, u32>,
    /// The oldest weights of those turns.
    oldest: BTreeMap<TrajectoryId, WeightVersion>,
    /// Pulls as they were ordered and are not known to be over.
    pullers: BTreeMap<Incarnation, pulls::Ordered>,
    /// Nothing went wrong so far, as the search knows.
    pub(crate) untouched: bool,
    /// Nothing disturbs it any more.
    calm: bool,
    /// Trajectories that an environment could not go on from.
    diverged: BTreeSet<TrajectoryId>,
    /// Since when the last step waits for engines that have not got the newest weights.
    lags_since: Option<Time>,
    /// Route requests that wait for their answer.
    asked: BTreeMap<u64, agents::Doing>,
    /// The last that was said and may come twice.
    said: VecDeque<Input>,
    /// Clients of the router that wait, and how long each keeps its engine.
    clients: BTreeMap<u64, Duration>,
    /// Trajectories stored with their reward.
    pub stored: BTreeSet<TrajectoryId>,
    /// Trajectories that no engine survives.
    poison: BTreeSet<TrajectoryId>,
}

impl World {
    /// A job that starts now.
    pub fn new(config: CoreConfig, seed: u64) -> Self {
        Self::with(config, Timing::default(), seed)
    }

    /// A job that starts now, in which things take so long.
    pub fn with(config: CoreConfig, timing: Timing, seed: u64) -> Self {
        Self::made(config, timing, seed, Journal::Off).started()
    }

    /// A job of so many controllers, of whose requests to etcd so many of a thousand are late.
    pub(crate) fn of_controllers(
        (config, timing): (CoreConfig, Timing),
        seed: u64,
        journal: Journal,
        (count, late_per_mille): (u32, u64),
    ) -> Self {
        let mut world = Self::made(config, timing, seed, journal);
        // Until the first one leads.
        world.daemon.up = false;
        world.run_controllers(count, late_per_mille);
        world
    }

    /// The same with every line written down.
    pub fn journaled(config: CoreConfig, timing: Timing, seed: u64) -> Self {
        Self::made(config, timing, seed, Journal::Lines(Vec::new())).started()
    }

    fn made(config: CoreConfig, timing: Timing, seed: u64, journal: Journal) -> Self {
        let mut world = Self {
            core: Core::new(config.clone()),
            checker: Checker::new(&config),
            taken: Vec::new(),
            begun_anew: false,
            office: Office::new(&config),
            machines: Machines::new(config.first_nodes()),
            ha: controllers::Controllers::none(),
            config,
            timing,
            now: Time(1_000_000_000),
            procs: BTreeMap::new(),
            trained: Vec::new(),
            routed_at: Vec::new(),
            outcome: None,
            journal,
            program_ends: 4,
            outputs: 0,
            inputs: 0,
            coverage: Coverage::default(),
            check_core: false,
            check_progress: false,
            seed,
            dice: Dice::new(seed),
            queue: BTreeMap::new(),
            serial: 0,
            daemon: Daemon::new(),
            places: BTreeMap::new(),
            homes: BTreeMap::new(),
            before: BTreeMap::new(),
            gang: GangWork::default(),
            doomed: BTreeMap::new(),
            turns: BTreeMap::new(),
            oldest: BTreeMap::new(),
            pullers: BTreeMap::new(),
            untouched: false,
            calm: false,
            diverged: BTreeSet::new(),
            lags_since: None,
            asked: BTreeMap::new(),
            said: VecDeque::new(),
            clients: BTreeMap::new(),
            stored: BTreeSet::new(),
            poison: BTreeSet::new(),
        };
        if !world.timing.sample_every.is_zero() {
            world.after(world.timing.sample_every, Happening::Samples);
        }
        world
    }

    /// The one controller starts.
    fn started(mut self) -> Self {
        self.feed(Input::Start);
        self
    }

    /// Chance.
    pub fn random(&mut self, below: u64) -> u64 {
        self.dice.below(below)
    }

    fn after(&mut self, delay: Duration, what: Happening) {
        self.serial += 1;
        self.queue.insert((self.now + delay, self.serial), what);
    }

    fn number(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// What broke first, if anything did; the world stands still then.
    pub fn violation(&self) -> Option<&Violation> {
        self.checker.violation.as_ref()
    }

    /// Steps committed durably.
    pub fn committed(&self) -> u64 {
        self.checker.committed.0
    }

    /// The last version published durably.
    pub fn published(&self) -> Option<WeightVersion> {
        self.checker.published
    }

    /// The newest life started at a place; 0 before the first.
    pub fn life(&self, who: InstanceId) -> Incarnation {
        self.places.get(&who).copied().unwrap_or_default()
    }

    /// The process at a place, if it has not been seen to end.
    pub fn proc(&mut self, who: InstanceId) -> Option<&mut Proc> {
        let life = self.life(who);
        self.procs.get_mut(&life)
    }

    /// Runs until the condition holds (true), or the time is over, the job is, or something broke.
    pub fn run_until(&mut self, limit: Duration, cond: impl Fn(&World) -> bool) -> bool {
        let end = self.now + limit;
        loop {
            if cond(self) {
                return true;
            }
            if self.now >= end || self.violation().is_some() {
                return false;
            }
            self.step();
        }
    }

    /// Runs for a time; less when the job ends or something breaks.
    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.outcome.is_none() && self.violation().is_none() {
            if self.next_at().is_none_or(|at| at > end) {
                self.now = self.now.max(end);
                return;
            }
            self.step();
        }
    }

    /// Whether there is more to come before this time.
    pub(crate) fn goes_on(&self, end: Time) -> bool {
        let due = self.next_at().is_some_and(|at| at <= end);
        due && self.outcome.is_none() && self.violation().is_none()
    }

    /// When the next thing happens.
    fn next_at(&self) -> Option<Time> {
        let next = self.queue.keys().next().map(|(at, _)| *at);
        let parked = self.parked_wakes_at().map(|(at, _)| at);
        [next, self.wake_at(), parked].into_iter().flatten().min()
    }

    /// When the core wants to be woken; never while nobody can.
    fn wake_at(&self) -> Option<Time> {
        self.daemon
            .idle()
            .then(|| self.core.next_timeout())
            .flatten()
    }

    /// Lets the next thing happen.
    pub fn step(&mut self) {
        if self.violation().is_some() {
            return;
        }
        let next = self.queue.keys().next().copied();
        let first = [next.map(|(at, _)| at), self.wake_at()]
            .into_iter()
            .flatten()
            .min();
        if let Some((at, c)) = self.parked_wakes_at()
            && first.is_none_or(|first| at < first)
        {
            self.now = self.now.max(at);
            return self.wake_parked(c);
        }
        match (next, self.wake_at()) {
            (at, Some(t)) if at.is_none_or(|(at, _)| t < at) => {
                // Something that the core did not hear of may have happened at this very time.
                self.now = self.now.max(t);
                self.feed(Input::Timeout);
                if self.wake_at().is_some_and(|t| t <= self.now) {
                    // What it led to may be due already.
                    self.feed(Input::Timeout);
                }
                if self.wake_at().is_some_and(|t| t <= self.now) {
                    self.checker
                        .broken(self.now, "timeouts", "a timeout is not served");
                }
            }
            (Some(key), _) => {
                self.now = key.0;
                if let Some(what) = self.queue.remove(&key) {
                    self.sit(self.meets(&what));
                    self.happen(what);
                    self.sit_back();
                }
            }
            (None, _) => {
                let text = "nothing will ever happen any more";
                self.checker.broken(self.now, "liveness", text);
            }
        }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Feed(input) if self.refused(&input) => {}
            Happening::Feed(input) => self.feed(input),
            Happening::Link(life) => self.link(life),
            Happening::LinkEnds(life) => self.link_ends(life),
            Happening::Said(life, link, input) => self.heard(life, link, input),
            Happening::Told(life, link, order) => self.told(life, link, order),
            Happening::Dies(life, code) => self.ends(life, robust_shared::core::Exit::Code(code)),
            Happening::DiesOf(life, of) => self.dies_of(life, of),
            Happening::Heals(life) => self.heal_one(life),
            Happening::Gang(generation, call, part) => self.gang_goes_on(generation, call, part),
            Happening::Pull(puller, serial) => self.pull_goes_on(puller, serial),
            Happening::Probed(life) => self.probed(life),
            Happening::Switch(engine, paused, by) => self.switch(engine, paused, by),
            Happening::GoesOn(life) => self.daemon_goes_on(life),
            Happening::Turn(doing) => self.turn(doing),
            Happening::Generated(doing, rollout, ticket) => self.generated(doing, rollout, ticket),
            Happening::Answered(doing, ticket, by) => self.answered(doing, ticket, by),
            Happening::Append(doing) => self.append(doing),
            Happening::AppendAgain(doing, stored) => self.append_again(doing, stored),
            Happening::Controller(c, life, event) => self.controller(c, life, event),
            Happening::AtEtcd(c, call, ask) => self.at_etcd(c, call, ask),
            Happening::AtStore(c, call, work) => self.at_store(c, call, work),
            Happening::LeaseEnds(lease) => self.lease_ends(lease),
            Happening::Quorum => self.quorum(),
            Happening::Together(c, serial) => self.comes_together(c, serial),
            Happening::Silent(at, stream) => self.silent(at, stream),
            Happening::ToolTried(doing) => self.tool_tried(doing),
            Happening::Samples => self.samples(),
            Happening::Ghosts(who) => self.haunt(who),
            Happening::Retires(life) => self.retires(life),
            Happening::Reported(at, input) => self.node_says(at, input),
            Happening::NodeSaid(at, stream, input) => self.node_said(at, stream, input),
            Happening::Ordered(at, stream, order) => self.ordered(at, stream, order),
            Happening::Beat(at) => self.beat(at),
            Happening::Join(at) if self.ha.are_there() => self.join_some(at),
            Happening::Join(at) => self.join(at),
            Happening::Mend => self.mend(),
            Happening::NodeBack(at) => self.node_back(at),
            Happening::NodeLeaves(at, for_) => self.leave_now(at, for_),
            Happening::Durable(life) => self.durable(life),
            Happening::DaemonBack(life) => self.restart_daemon(life),
        }
    }
}
