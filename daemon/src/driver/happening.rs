//! What reaches the driver from outside, on one channel.
use crate::control::{Replayed, StepOutcome};
use crate::driver::logs::LogAnswer;
use crate::driver::{Change, Revision};
use crate::links::{Down, LinkId, Via};
use crate::nodes::Joined;
use crate::services::Heard;
use crate::snapshots::SnapshotShards;
use robust_proto::v1;
use robust_shared::core::{Refusal, Reply, Request};
use robust_shared::fault::{At, Fault};
use robust_shared::ids::{Incarnation, InstanceId, Role, Step, TrajectoryId};
use tokio::sync::{mpsc, oneshot};

/// The way to the driver. Unbounded: whoever tells the driver something may hold a lease that the
/// driver waits for, so telling must never wait for the driver.
pub type Happenings = mpsc::UnboundedSender<Happening>;

/// One thing that happened outside the driver.
#[derive(Debug)]
pub enum Happening {
    /// A role process opened its link.
    Attach {
        /// What it says of itself.
        hello: Box<v1::Hello>,
        /// Names this link.
        link: LinkId,
        /// The way to it.
        down: Down,
        /// The node it came through; none: this one.
        via: Option<Via>,
        /// Told whether it may stay.
        admitted: oneshot::Sender<Result<(), Fenced>>,
    },
    /// A link closed.
    LinkClosed {
        /// Whose.
        incarnation: Incarnation,
        /// Which.
        link: LinkId,
    },
    /// A role process said something.
    Said {
        /// Who.
        incarnation: Incarnation,
        /// Over which link.
        link: LinkId,
        /// What.
        body: Box<v1::role_message::Body>,
    },
    /// A trajectory's end is durable.
    Finished {
        /// Who held it.
        incarnation: Incarnation,
        /// Which.
        trajectory: TrajectoryId,
        /// Its reward.
        reward: f64,
        /// The oldest version of its spans.
        oldest_version: u64,
    },
    /// An agent wants a rollout.
    RouteWanted {
        /// Names the request.
        ticket: u64,
        /// The agent.
        incarnation: Incarnation,
        /// For which trajectory.
        trajectory: TrajectoryId,
        /// Told where to go.
        answer: oneshot::Sender<v1::RouteReply>,
    },
    /// A client of the router wants a rollout.
    ClientRouteWanted {
        /// Names the request.
        ticket: u64,
        /// The rollout that failed the same request before.
        avoid: Option<Incarnation>,
        /// Told where to go.
        answer: oneshot::Sender<v1::RouteReply>,
    },
    /// A request for a rollout is over.
    RouteReleased {
        /// Which.
        ticket: u64,
        /// The rollout broke it off.
        broken: bool,
    },
    /// The gang's calls for one output ended.
    Stepped {
        /// Names the task.
        task: u64,
        /// How.
        outcome: Box<StepOutcome>,
    },
    /// The gang trains committed steps again on its way to the last one.
    Replayed {
        /// Names the task.
        task: u64,
        /// How far it is.
        replayed: Box<Replayed>,
    },
    /// A snapshot's shards are in this machine's memory again.
    Brought {
        /// Of which step.
        step: Step,
        /// Where they are now.
        brought: SnapshotShards,
    },
    /// A probe ended.
    Probed {
        /// Whom it probed.
        incarnation: Incarnation,
        /// Whether it answered in time.
        ok: bool,
    },
    /// A hybrid engine answered a command.
    Switched {
        /// Which.
        incarnation: Incarnation,
        /// What it was told: to pause, or to go on.
        paused: bool,
        /// Whether it did.
        ok: bool,
    },
    /// Evidence was taken.
    Evidence {
        /// Of whom.
        incarnation: Incarnation,
        /// Stacks and states.
        text: String,
    },
    /// An operator wants an instance struck.
    Inject {
        /// How.
        fault: Fault,
        /// Whom.
        role: Role,
        /// Which of them.
        index: Option<u32>,
        /// Which life of it; any when none is given.
        incarnation: Option<Incarnation>,
        /// When; at once when no moment is given.
        at: Option<At>,
        /// Told who is struck, or why nobody.
        answer: oneshot::Sender<Result<Struck, Refusal>>,
    },
    /// An operator wants something of the core.
    Asked {
        /// What.
        request: Request,
        /// Told what is done, or why nothing is.
        answer: oneshot::Sender<Result<Reply, Refusal>>,
    },
    /// An operator reads a log.
    ReadLog {
        /// Of which place.
        id: InstanceId,
        /// From where on.
        offset: u64,
        /// At most so many bytes.
        bytes: u32,
        /// Told what it says there.
        answer: LogAnswer,
    },
    /// A process that was asked to end has had its time.
    Retired {
        /// Which life.
        incarnation: Incarnation,
    },
    /// An operator wants a role changed.
    Change {
        /// Which.
        role: Role,
        /// How.
        change: Change,
        /// Told when it comes, or why it does not.
        answer: oneshot::Sender<Result<Reply, Refusal>>,
    },
    /// A revision of the job is written, or cannot be.
    Revised {
        /// Which.
        revision: Box<Revision>,
        /// Whether.
        written: Result<(), String>,
    },
    /// Of the job's services.
    Service(Heard),
    /// An operator wants the job ended.
    Stop,
    /// A node proved itself and wants to be one of the job.
    NodeJoined {
        /// What it says of itself.
        joined: Box<Joined>,
        /// Told whether it may.
        admitted: oneshot::Sender<Result<(), NodeRefused>>,
    },
    /// A joined node said something.
    NodeSaid {
        /// Over which stream.
        link: LinkId,
        /// What.
        body: Box<v1::node_message::Body>,
    },
    /// A joined node's stream ended.
    NodeGone {
        /// Which.
        link: LinkId,
    },
}

/// Whom an injected fault struck.
#[derive(Clone, Debug, PartialEq)]
pub struct Struck {
    /// Place.
    pub id: InstanceId,
    /// Which life.
    pub incarnation: Incarnation,
    /// Its process.
    pub pid: u32,
    /// The slot that is lost with it.
    pub slot: Option<v1::Slot>,
    /// The fault waits for its moment, or for the role to do it: its number.
    pub armed: Option<u64>,
}

/// Why a link is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fenced: incarnation {0} is not a current one")]
pub struct Fenced(pub Incarnation);

/// Why a node may not join.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeRefused {
    /// The leader's own name.
    #[error("`{name}` is the leader's own name; choose another with --name")]
    Leader {
        /// It.
        name: String,
    },
    /// Another machine has that name and is there.
    #[error("another node named `{name}` is joined; choose another name with --name")]
    Taken {
        /// It.
        name: String,
    },
    /// Nobody said what it has.
    #[error(
        "nobody says which slots `{name}` has: name them with --pools, or give the job file a \
         [[node]] of that name"
    )]
    NoPools {
        /// Its name.
        name: String,
    },
    /// What it has is of no use here.
    #[error("no role uses a pool that `{name}` has ({has}): the job's pools are {pools}")]
    UselessPools {
        /// Its name.
        name: String,
        /// Its pools.
        has: String,
        /// Those of the job's roles.
        pools: String,
    },
    /// The job is ending.
    #[error("the job is ending")]
    Ending,
}
