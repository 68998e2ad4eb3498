//! A cluster in virtual time, for long runs and many nodes: every message arrives, only durations
//! count, and an event costs the same whatever the size of the cluster. Faults are machines that die.
//! (The search for faults in the protocol is another world, with lost and late messages.)
//!
//! ```text
//!  queue of events ── earliest ──► Input ──► Core ──► Outputs ──► events at now + Timing
//! ```
//! A machine that dies takes its processes with it; another one, with the same slots, joins after
//! the time that scheduling it and starting its container take. One thread, no clock: the same plan
//! and the same deaths give the same run.
mod ahead;
mod deeds;
mod gang;
mod guard;
mod hang;
mod machines;
mod processes;
mod queue;
mod timing;
mod wires;
mod work;
mod written;

pub use ahead::Heard;
pub use timing::{LongTail, Timing, unit};
pub use wires::Wires;
pub use written::Written;

use crate::wire::fabric::Source;
use processes::Process;
use queue::Queue;
use robust_shared::core::{
    CodedError, Core, CoreConfig, Incident, Input, NodeSpec, Outcome, Output, PullOrder,
};
use robust_shared::ettr::Interval;
use robust_shared::hash::IdMap;
use robust_shared::ids::{Incarnation, IncidentId, InstanceId, NodeId, Role, TrajectoryId};
use robust_shared::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// Virtual time does not begin at zero, which means "never" in some fields.
const DAWN: Time = Time(1_000_000_000);

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The job as the controller knows it, its machines among it; the first never dies.
    pub config: CoreConfig,
    /// How long everything takes.
    pub timing: Timing,
    /// Decides lengths.
    pub seed: u64,
    /// Time between two activity samples of an instance; none are sent if zero.
    pub samples: Duration,
    /// Time between two heartbeats of a machine. If zero none is sent, and what the controller's
    /// rule would find is told to it after [`Timing::node_seen`].
    pub beats: Duration,
    /// Whether every input and output is written down.
    pub journal: bool,
    /// Whether what changed of the controller's state is taken and encoded with every record, as the
    /// daemon does, and counted.
    pub records: bool,
    /// Whether the invariants are held on the way; see [`Cluster::broken`].
    pub guard: bool,
}

/// What happens at an instant.
#[derive(Clone, Debug)]
enum Event {
    Feed(Box<Input>),
    /// A process that was spawned at this instant begins to start.
    Begin(Incarnation),
    Link(Incarnation),
    /// The gang's call enters the part.
    Call(u64, u32),
    Turn(Incarnation, TrajectoryId),
    TurnEnds(u64),
    PullEnds(Incarnation, u64),
    PullBegins(Incarnation, u64, Source),
    Fetch(Incarnation, u64, Source),
    PullsGoOn,
    Switched(Incarnation, bool),
    Ends(Incarnation),
    Join(Box<NodeSpec>),
    /// A process that hangs is sampled.
    Stuck(Incarnation),
    Beats,
    Samples,
    Wake,
}

/// The cluster and the controller that runs it.
pub struct Cluster {
    plan: Plan,
    core: Core,
    now: Time,
    queue: Queue<Event>,
    serial: u64,
    /// By incarnation: they are numbered from 1.
    processes: Vec<Option<Process>>,
    /// Whether a machine lives.
    machines: Vec<bool>,
    /// The incarnation last spawned in a place.
    lives: IdMap<(Role, u32), Incarnation>,
    call: Option<gang::Running>,
    /// Trajectories whose old logprobs the present gang has.
    prepared: (
        robust_shared::ids::Generation,
        robust_shared::ids::Step,
        usize,
    ),
    requests: IdMap<u64, work::Request>,
    progress: IdMap<TrajectoryId, work::Progress>,
    pulls: IdMap<Incarnation, PullOrder>,
    /// The network under the pulls; without one a pull takes [`Timing::pull`].
    wires: Option<Box<Wires>>,
    /// When a whole task was spawned last.
    whole_start: Option<Time>,
    /// Engines of it that start after the trainer.
    after_trainer: Vec<Incarnation>,
    last_spawned: [Option<Time>; Role::ALL.len()],
    woken_for: Option<Time>,
    inputs: u64,
    outcome: Option<Outcome>,
    intervals: Vec<Interval>,
    incidents: BTreeMap<IncidentId, Incident>,
    digest: u64,
    journal: Vec<String>,
    written: Result<Written, CodedError>,
    guard: Option<Box<guard::Guard>>,
    /// Of a copy that is run ahead: what it has done so far.
    heard: Option<Box<ahead::Heard>>,
}

impl Cluster {
    /// Starts the job, on machines that are all there.
    pub fn new(plan: Plan) -> Self {
        let machines = plan.config.first_nodes();
        let core = Core::new(plan.config.clone());
        let mut cluster = Self::around(plan, core, DAWN);
        for spec in machines.into_iter().skip(1) {
            cluster.join(spec);
        }
        cluster.begin_to_sample();
        cluster.feed(Input::Start);
        cluster
    }

    /// A world in which nothing runs, around a controller.
    fn around(plan: Plan, core: Core, now: Time) -> Self {
        Self {
            core,
            now,
            queue: Queue::new(),
            serial: 0,
            processes: vec![None],
            machines: vec![true],
            lives: IdMap::default(),
            call: None,
            prepared: Default::default(),
            requests: IdMap::default(),
            progress: IdMap::default(),
            pulls: IdMap::default(),
            wires: None,
            whole_start: None,
            after_trainer: Vec::new(),
            last_spawned: [None; Role::ALL.len()],
            woken_for: None,
            inputs: 0,
            outcome: None,
            intervals: Vec::new(),
            incidents: BTreeMap::new(),
            digest: 0,
            journal: Vec::new(),
            written: Ok(Written::default()),
            guard: plan.guard.then(|| guard::Guard::new(&plan.config)),
            heard: None,
            plan,
        }
    }

    fn begin_to_sample(&mut self) {
        if self.plan.samples > Duration::ZERO {
            self.after(self.plan.samples, Event::Samples);
        }
        if self.plan.beats > Duration::ZERO {
            self.after(self.plan.beats, Event::Beats);
        }
    }

    /// Virtual time since the job began.
    pub fn elapsed(&self) -> Duration {
        self.now.since(DAWN)
    }

    /// The instant, as in what is recorded.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The machine that a life was started on.
    pub fn node_of(&self, incarnation: Incarnation) -> Option<NodeId> {
        self.process(incarnation).map(|process| process.node)
    }

    /// Inputs the controller has taken.
    pub fn inputs(&self) -> u64 {
        self.inputs
    }

    /// How the job ended, once it has.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()
    }

    /// The controller.
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Every incident, oldest first.
    pub fn incidents(&self) -> impl Iterator<Item = &Incident> {
        self.incidents.values()
    }

    /// The ledger's closed intervals, in order.
    pub fn intervals(&self) -> &[Interval] {
        &self.intervals
    }

    /// Every input and output, if they were to be written down.
    pub fn journal(&self) -> &[String] {
        &self.journal
    }

    /// What the daemon would have written of the state; why it could not be.
    pub fn written(&self) -> Result<&Written, &CodedError> {
        self.written.as_ref()
    }

    /// What broke first of the invariants, if they are held on the way. Looked at are every output and
    /// record: I-1 one generation, numbers that grow; I-2 one lease, nothing finished handed out again;
    /// I-3 steps in order, whole batches, each trajectory once; I-4 versions grow; I-5 what is published or
    /// restored is committed; I-6 pullers of a source; I-7 restarts in a row; I-8 verdicts are true.
    pub fn broken(&self) -> Option<&str> {
        self.guard.as_ref()?.broken()
    }

    /// A digest over every output so far: equal for two runs of the same plan.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Runs until nothing is left to happen before `until`, or the job ends.
    pub fn run_until(&mut self, until: Duration) {
        let end = DAWN + until;
        while self.outcome.is_none() {
            match self.next_at() {
                Some(at) if at <= end => self.step(),
                _ => {
                    self.now = self.now.max(end);
                    return;
                }
            }
        }
    }

    /// Runs until the step is committed or the job ends.
    pub fn run_to_step(&mut self, step: u64) {
        while self.outcome.is_none()
            && self.core.state().committed().0 < step
            && self.next_at().is_some()
        {
            self.step();
        }
    }

    fn next_at(&self) -> Option<Time> {
        let queued = self.queue.next_at();
        queued.into_iter().chain(self.wires_next()).min()
    }

    fn step(&mut self) {
        let next = self.queue.next_at();
        let wires = self.wires_next();
        if let Some(at) = wires.filter(|at| next.is_none_or(|next| *at <= next)) {
            self.now = self.now.max(at);
            return self.wires_step();
        }
        let Some((at, event)) = self.queue.pop() else {
            return;
        };
        self.now = self.now.max(at);
        match event {
            Event::Feed(input) => self.feed(*input),
            Event::Begin(incarnation) => self.begin(incarnation),
            Event::Link(incarnation) => self.link(incarnation),
            Event::Call(number, part) => self.call_goes_on(number, part),
            Event::Turn(agent, trajectory) => self.ask(agent, trajectory),
            Event::TurnEnds(ticket) => self.turn_ends(ticket),
            Event::PullEnds(puller, version) => self.pull_ends(puller, version),
            Event::PullBegins(puller, version, source) => self.pull_begins(puller, version, source),
            Event::Fetch(puller, version, source) => self.fetch(puller, version, source),
            Event::PullsGoOn => self.report_pulls(),
            Event::Switched(engine, paused) => self.switched(engine, paused),
            Event::Ends(incarnation) => self.end(incarnation, true),
            Event::Join(spec) => self.join(*spec),
            Event::Stuck(incarnation) => self.sample_stuck(incarnation),
            Event::Beats => self.beat(),
            Event::Samples => self.sample(),
            // One that was planned before an earlier one is not followed by another: there would be ever more.
            Event::Wake if self.woken_for.is_some_and(|at| at <= self.now) => {
                self.woken_for = None;
                self.feed(Input::Timeout);
            }
            Event::Wake => {}
        }
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.queue.push(self.now + delay, event);
    }

    /// Gives the controller an input and does what it wants.
    fn feed(&mut self, input: Input) {
        self.inputs += 1;
        if self.plan.journal {
            self.journal.push(format!("{} {input:?}", self.now));
        }
        if let Some(guard) = &mut self.guard {
            guard.told(&input);
        }
        self.core.handle(self.now, input);
        let mut records = 0;
        while let Some(output) = self.core.poll_output() {
            records += u64::from(matches!(output, Output::Record(_)));
            self.act(output);
        }
        if records > 0 && self.plan.records {
            self.write(records);
        }
        let Some(due) = self.core.next_timeout() else {
            return;
        };
        if self.woken_for.is_none_or(|at| due < at) {
            self.woken_for = Some(due);
            self.queue.push(due.max(self.now), Event::Wake);
        }
    }

    /// The place where an instance was started last.
    fn life(&self, id: InstanceId) -> Option<Incarnation> {
        self.lives.get(&(id.role, id.index)).copied()
    }

    /// One that joins is given work before its number is known here.
    fn machine_lives(&self, node: NodeId) -> bool {
        self.machines.get(node.0 as usize).copied().unwrap_or(true)
    }
}
