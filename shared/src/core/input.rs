//! Everything that can happen to the controller.
use super::config::CoreConfig;
use super::nodes::NodeSpec;
use crate::fault::{At, Fault};
use crate::hardware::Finding;
use crate::ids::{
    Generation, Incarnation, InstanceId, NodeId, Role, Step, TrajectoryId, WeightVersion,
};
use crate::phase::Phase;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One thing that happened. Given to [`super::Core::handle`] with the time it happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// The driver is ready: start the job (or go on, after [`super::Output`]).
    Start,
    /// A process was started for [`super::Output::Spawn`].
    Spawned {
        /// Which life.
        incarnation: Incarnation,
        /// Its process id.
        pid: u32,
    },
    /// A process could not be started.
    SpawnFailed {
        /// Which life.
        incarnation: Incarnation,
        /// The operating system's reason.
        reason: String,
    },
    /// The role's process opened (or, after a daemon restart, reopened) its link and can be
    /// commanded.
    Attached {
        /// Which life.
        incarnation: Incarnation,
        /// What it says of itself.
        hello: Hello,
    },
    /// The role's link closed. On its own it is no verdict: the process may be re-linking.
    Detached {
        /// Which life.
        incarnation: Incarnation,
    },
    /// The process ended.
    Exited {
        /// Which life.
        incarnation: Incarnation,
        /// When the operating system said so; none when nobody was there to hear it.
        at: Option<Time>,
        /// How.
        exit: Exit,
        /// The last lines of its error output, or empty.
        detail: String,
    },
    /// The instance entered a phase.
    PhaseChanged {
        /// Which life.
        incarnation: Incarnation,
        /// The phase now.
        phase: Phase,
        /// The step it works on, where one applies.
        step: Step,
    },
    /// A periodic activity sample.
    Sampled {
        /// Which life.
        incarnation: Incarnation,
        /// The figures.
        sample: Sample,
    },
    /// A health probe's result (real generation of one token for rollouts).
    Probed {
        /// Which life.
        incarnation: Incarnation,
        /// Whether it answered in time.
        ok: bool,
    },
    /// Evidence asked for by [`super::Output::CollectEvidence`].
    Evidence {
        /// Which life.
        incarnation: Incarnation,
        /// Stacks, wait channels, states.
        text: String,
    },
    /// The gang restored its state at this step and can train.
    Restored {
        /// Which gang.
        generation: Generation,
        /// The step restored.
        step: Step,
    },
    /// All ranks computed what [`super::Output::Prepare`] asked for.
    Prepared {
        /// Which gang.
        generation: Generation,
        /// For which step.
        step: Step,
    },
    /// A hybrid engine answered [`super::Output::Pause`] or [`super::Output::Resume`].
    Switched {
        /// Which life.
        incarnation: Incarnation,
        /// What it was told: to pause, or to go on.
        paused: bool,
        /// Whether it does so; false when it refused.
        ok: bool,
    },
    /// All ranks finished the step and hold a complete snapshot of it.
    StepDone {
        /// Which gang.
        generation: Generation,
        /// The step.
        step: Step,
        /// Its figures.
        metrics: StepMetrics,
    },
    /// Every program of a gang with a loop of its own ended with code 0.
    TrainerOver {
        /// Which gang.
        generation: Generation,
    },
    /// A call to the gang failed without a rank having died (an exception reported by it).
    StepFailed {
        /// Which gang.
        generation: Generation,
        /// The step.
        step: Step,
        /// Who reported it, if one rank did.
        rank: Option<Incarnation>,
        /// What kind of failure it says it was.
        fault: CallFault,
        /// The exception's text.
        reason: String,
    },
    /// All ranks serve this version; pullers may fetch it from them.
    Published {
        /// Which gang.
        generation: Generation,
        /// The version.
        version: WeightVersion,
        /// Its bytes.
        bytes: u64,
        /// The manifest's digest, hex.
        digest: String,
    },
    /// A puller took up its order: what it verifies of this version from now on can be read by others
    /// (said again when the same order comes again).
    PullStarted {
        /// The puller.
        incarnation: Incarnation,
        /// The version.
        version: WeightVersion,
    },
    /// Bytes of a pull so far.
    PullProgress {
        /// The puller.
        incarnation: Incarnation,
        /// The version.
        version: WeightVersion,
        /// Bytes fetched and verified.
        bytes: u64,
        /// Bytes in all.
        total: u64,
    },
    /// A pull ended.
    Pulled {
        /// The puller.
        incarnation: Incarnation,
        /// The version.
        version: WeightVersion,
        /// Verified and serving, or why not.
        result: Result<(), PullFailure>,
    },
    /// An agent worker stored the last turn and the reward of a trajectory, durably.
    TrajectoryFinished {
        /// The agent that held the lease.
        incarnation: Incarnation,
        /// Which.
        trajectory: TrajectoryId,
        /// Its reward.
        reward: f64,
        /// The oldest weight version that produced any of its spans.
        oldest_version: WeightVersion,
    },
    /// An agent worker gives a trajectory back unfinished: it cannot go on, and by no doing of the
    /// model's. It is no sample; whoever gets it next goes on from what is stored.
    TrajectoryReturned {
        /// The agent that held the lease.
        incarnation: Incarnation,
        /// Which.
        trajectory: TrajectoryId,
        /// Why.
        reason: String,
        /// Who could not go on.
        #[serde(default)]
        by: ReturnedBy,
    },
    /// An agent worker wants a rollout for a turn.
    RouteRequested {
        /// Names the request in the answer.
        ticket: u64,
        /// The agent.
        incarnation: Incarnation,
        /// For which trajectory.
        trajectory: TrajectoryId,
    },
    /// A client of the router wants a rollout; it has no lease, and no trajectory of the job's.
    ClientRouteRequested {
        /// Names the request in the answer.
        ticket: u64,
        /// The rollout that failed the same request before: taken only where no other is fit.
        avoid: Option<Incarnation>,
    },
    /// The turn ended (well or not); the rollout has one request fewer.
    RouteReleased {
        /// The request.
        ticket: u64,
        /// The rollout broke it off.
        #[serde(default)]
        broken: bool,
    },
    /// A node joined the job, or came back to it; what runs there and is not current is fenced.
    NodeJoined {
        /// What it has. A name that is known is the node of that name.
        node: NodeSpec,
        /// The role processes that live there.
        running: Vec<Incarnation>,
    },
    /// A node's daemon is alive.
    NodeBeat {
        /// Which.
        node: NodeId,
    },
    /// A node's daemon says that it leaves; its role processes end with it.
    NodeLeft {
        /// Which.
        node: NodeId,
        /// Why.
        reason: String,
    },
    /// A device of a node showed something.
    Hardware {
        /// The node's name.
        node: String,
        /// The device's number on it.
        device: u32,
        /// What it showed.
        finding: Finding,
        /// The lives whose processes compute on it.
        #[serde(default)]
        users: Vec<Incarnation>,
    },
    /// A role does an injected fault to itself now, or cannot.
    FaultStruck {
        /// Which life.
        incarnation: Incarnation,
        /// The fault's number.
        number: u64,
        /// Why it cannot.
        refused: Option<String>,
    },
    /// A service is given up that the job cannot do without: the job fails.
    ServiceLost {
        /// Which, and why.
        reason: String,
    },
    /// An operator wants something.
    Operator(Request),
    /// The time given by [`super::Core::next_timeout`] has come.
    Timeout,
}

/// What a role's process says of itself when it attaches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Where its transport listens (`ip:port`), if it has one.
    pub transport_addr: String,
    /// Where its HTTP API listens (`ip:port`), for rollouts.
    pub http_addr: String,
    /// Rollout: the version it serves. Trainer: the version it published last. None at first.
    pub version: Option<WeightVersion>,
    /// Trainer: the step its state is at; none before it restored.
    pub step: Option<Step>,
    /// Agent: the trajectories it is working on (after a daemon restart).
    pub leases: Vec<TrajectoryId>,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// With a code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It is gone; how is not known (it was adopted, so nobody could wait for it).
    Gone,
}

/// Activity of one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Processor (or accelerator) time used so far; only differences count.
    pub busy: Duration,
    /// Tokens generated so far by this incarnation (rollouts).
    pub tokens_total: u64,
    /// Requests running now (rollouts).
    pub running: u32,
    /// Resident memory in bytes.
    pub rss_bytes: u64,
    /// Bytes it had read from disk so far.
    #[serde(default)]
    pub disk_read_bytes: u64,
    /// Bytes it had written to disk so far.
    #[serde(default)]
    pub disk_write_bytes: u64,
    /// Accelerator time used so far (tensor cores where they are measured); none where it uses no
    /// accelerator that is. Only differences count.
    #[serde(default)]
    pub accelerator: Option<Duration>,
    /// Tool calls of this incarnation that failed by no doing of the model's (agents).
    #[serde(default)]
    pub tool_failures: u64,
    /// Callers of this incarnation's weights that were turned away: none of a healthy job.
    #[serde(default)]
    pub callers_refused: u64,
}

/// Who could not go on with a trajectory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReturnedBy {
    /// The agent worker that holds it.
    #[default]
    Worker,
    /// The daemon, before the worker heard of it.
    Daemon,
    /// The worker, which cannot go on from what is stored of it.
    Diverged,
}

/// What a call to the gang failed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallFault {
    /// An exception of any kind.
    #[default]
    Exception,
    /// Loss or gradient were no numbers; nothing was changed by the step.
    Numeric,
}

/// Figures of a finished step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// Mean reward of the batch.
    pub reward: f64,
    /// Policy loss.
    pub loss: f64,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    /// Tokens trained on.
    pub tokens: u64,
    /// Steps between the oldest weights used in the batch and the newest (off-policy distance).
    pub staleness: u64,
}

impl StepMetrics {
    /// Whether anybody told figures: a program with a loop of its own need not.
    pub fn are_told(&self) -> bool {
        self.tokens > 0 || [self.reward, self.loss, self.grad_norm] != [0.0; 3]
    }
}

/// Why a pull failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PullFailure {
    /// A source stopped or died.
    Source {
        /// Which.
        source: Incarnation,
        /// The transport's words.
        reason: String,
    },
    /// A chunk's digest differs from the manifest's.
    Corrupt {
        /// Who served it.
        source: Incarnation,
    },
    /// A newer version was assigned meanwhile.
    Superseded,
    /// Something of its own failed, or nobody knows whose fault it is.
    Own {
        /// Its words.
        reason: String,
    },
}

/// An operator's wish. Each is answered by one [`super::Output::Reply`] with its ticket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Fault injection: strike an instance for real.
    Inject {
        /// Names the request in the answer.
        ticket: u64,
        /// What.
        fault: Fault,
        /// Whom; the lowest living index when no index is given.
        role: Role,
        /// Which of them.
        index: Option<u32>,
        /// The life that is meant; any when none is given.
        incarnation: Option<Incarnation>,
        /// When; at once when no moment is given.
        #[serde(default)]
        at: Option<At>,
    },
    /// Fault injection: strike a node or the leader.
    Afflict {
        /// Names the request in the answer.
        ticket: u64,
        /// What.
        fault: Fault,
    },
    /// Injected faults shall not strike any more.
    Disarm {
        /// Names the request in the answer.
        ticket: u64,
        /// Which; all that wait when none is given.
        number: Option<u64>,
    },
    /// A lost slot is there again.
    RestoreSlot {
        /// Names the request in the answer.
        ticket: u64,
        /// The node's name.
        node: String,
        /// The pool's name.
        pool: String,
        /// The slot within the pool on that node, from 0.
        index: u32,
    },
    /// The job shall have this many instances of a role.
    Scale {
        /// Names the request in the answer.
        ticket: u64,
        /// Which role.
        role: Role,
        /// How many.
        count: u32,
        /// The revision of the job file that says so; 0: none does.
        revision: u32,
    },
    /// New values for one role, which is restarted with them. Not part of recorded schedules: the
    /// rules in a configuration are values of the program.
    #[serde(skip)]
    Update {
        /// Names the request in the answer.
        ticket: u64,
        /// Which role.
        role: Role,
        /// The job's configuration with them.
        config: Box<CoreConfig>,
        /// The number of the job file's revision that has them.
        revision: u32,
        /// What differs, as `key = value`.
        changes: Vec<String>,
    },
    /// An engine shall get no traffic and serve no weights.
    Quarantine {
        /// Names the request in the answer.
        ticket: u64,
        /// A role with engines.
        role: Role,
        /// Which of them.
        index: u32,
    },
    /// The end of a quarantine.
    Readmit {
        /// Names the request in the answer.
        ticket: u64,
        /// A role with engines.
        role: Role,
        /// Which of them.
        index: u32,
    },
    /// Nothing new shall be started on a node.
    Cordon {
        /// Names the request in the answer.
        ticket: u64,
        /// Its name.
        node: String,
    },
    /// The end of a cordon.
    Uncordon {
        /// Names the request in the answer.
        ticket: u64,
        /// Its name.
        node: String,
    },
    /// Nothing shall be begun beyond the step under way.
    Pause {
        /// Names the request in the answer.
        ticket: u64,
    },
    /// The end of a pause.
    Resume {
        /// Names the request in the answer.
        ticket: u64,
    },
    /// New processes without a fault.
    Restart {
        /// Names the request in the answer.
        ticket: u64,
        /// Whose.
        target: RestartTarget,
    },
    /// End the job.
    Stop,
}

/// Whose processes an operator wants replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartTarget {
    /// One instance's; a rank takes its gang along.
    One(InstanceId),
    /// Those of a role, one after the other; the trainer's together.
    Role(Role),
    /// Everybody's.
    Task,
}

/// Names an instance in status and events.
pub type Who = InstanceId;
