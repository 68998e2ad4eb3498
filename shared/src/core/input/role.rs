//! What a role's process says, or what is said of it by whoever started it.
use crate::ids::{Incarnation, Step, TrajectoryId, WeightVersion};
use crate::phase::Phase;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One thing that happened to one incarnation of a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RoleEvent {
    /// A process was started for [`crate::core::Output::Spawn`].
    Spawned {
        /// Its process id.
        pid: u32,
    },
    /// A process could not be started.
    SpawnFailed {
        /// The operating system's reason.
        reason: String,
    },
    /// The role's process opened (or, after a daemon restart, reopened) its link and can be
    /// commanded.
    Attached {
        /// What it says of itself.
        hello: Hello,
    },
    /// The role's link closed. On its own it is no verdict: the process may be re-linking.
    Detached,
    /// The process ended.
    Exited {
        /// When the operating system said so; none when nobody was there to hear it.
        at: Option<Time>,
        /// How.
        exit: Exit,
        /// The last lines of its error output, or empty.
        detail: String,
    },
    /// The instance entered a phase.
    PhaseChanged {
        /// The phase now.
        phase: Phase,
        /// The step it works on, where one applies.
        step: Step,
    },
    /// A periodic activity sample.
    Sampled {
        /// The figures.
        sample: Sample,
    },
    /// A health probe's result (real generation of one token for rollouts).
    Probed {
        /// Whether it answered in time.
        ok: bool,
    },
    /// Evidence asked for by [`crate::core::Output::CollectEvidence`].
    Evidence {
        /// Stacks, wait channels, states.
        text: String,
        /// What can be compared with others'.
        #[serde(default)]
        seen: crate::core::Seen,
    },
    /// A hybrid engine answered [`crate::core::Output::Pause`] or [`crate::core::Output::Resume`].
    Switched {
        /// What it was told: to pause, or to go on.
        paused: bool,
        /// Whether it does so; false when it refused.
        ok: bool,
    },
    /// A puller took up its order: what it verifies of this version from now on can be read by others
    /// (said again when the same order comes again).
    PullStarted {
        /// The version.
        version: WeightVersion,
        /// The order that it took up; 0 where a role program of an earlier build does not say it.
        #[serde(default)]
        order: u64,
    },
    /// Bytes of a pull so far.
    PullProgress {
        /// The version.
        version: WeightVersion,
        /// Bytes fetched and verified.
        bytes: u64,
        /// Bytes in all.
        total: u64,
    },
    /// It read what it serves again, and bytes are not those that it verified.
    Damaged {
        /// The version.
        version: WeightVersion,
        /// Chunks that differ.
        chunks: u64,
        /// Chunks of the version.
        total: u64,
    },
    /// A pull ended.
    Pulled {
        /// The version.
        version: WeightVersion,
        /// The order that it answers; 0 where a role program of an earlier build does not say it.
        #[serde(default)]
        order: u64,
        /// Verified and serving, or why not.
        result: Result<(), PullFailure>,
    },
    /// An agent worker stored the last turn and the reward of a trajectory, durably.
    TrajectoryFinished {
        /// Which.
        trajectory: TrajectoryId,
        /// Its reward.
        reward: f64,
        /// The oldest weight version that produced any of its spans.
        oldest_version: WeightVersion,
        /// The lease under which it was stored; 0 where that is not known.
        #[serde(default)]
        lease: u64,
    },
    /// An agent worker gives a trajectory back unfinished: it cannot go on, and by no doing of the
    /// model's. It is no sample; whoever gets it next goes on from what is stored.
    TrajectoryReturned {
        /// Which.
        trajectory: TrajectoryId,
        /// Why.
        reason: String,
        /// Who could not go on.
        #[serde(default)]
        by: ReturnedBy,
        /// The lease that it ends; 0: whichever its agent worker holds.
        #[serde(default)]
        lease: u64,
    },
    /// An agent worker wants a rollout for a turn.
    RouteRequested {
        /// Names the request in the answer.
        ticket: super::Ticket,
        /// For which trajectory.
        trajectory: TrajectoryId,
    },
    /// A role does an injected fault to itself now, or cannot.
    FaultStruck {
        /// The fault's number.
        number: u64,
        /// Why it cannot.
        refused: Option<String>,
    },
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
    /// What had come changed in the puller's own memory before it could be served.
    Damaged {
        /// Its words.
        reason: String,
    },
    /// A newer version was assigned meanwhile.
    Superseded,
    /// Something of its own failed, or nobody knows whose fault it is.
    Own {
        /// Its words.
        reason: String,
    },
}
