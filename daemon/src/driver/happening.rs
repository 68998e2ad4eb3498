//! What reaches the driver from outside, on one channel.
use crate::control::StepOutcome;
use crate::driver::LinkId;
use robust_proto::v1;
use robust_shared::core::{Fault, Refusal};
use robust_shared::ids::{Incarnation, InstanceId, Role, TrajectoryId};
use tokio::sync::{mpsc, oneshot};

/// The way to the driver. Unbounded: whoever tells the driver something may hold a lease that the
/// driver waits for, so telling must never wait for the driver.
pub type Happenings = mpsc::UnboundedSender<Happening>;

/// Messages to one role process, in order.
pub type Down = mpsc::UnboundedSender<v1::HostMessage>;

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
    /// A request for a rollout is over.
    RouteReleased {
        /// Which.
        ticket: u64,
    },
    /// The gang's calls for one output ended.
    Stepped {
        /// Names the task.
        task: u64,
        /// How.
        outcome: Box<StepOutcome>,
    },
    /// A probe ended.
    Probed {
        /// Whom it probed.
        incarnation: Incarnation,
        /// Whether it answered in time.
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
        /// Told who is struck, or why nobody.
        answer: oneshot::Sender<Result<Struck, Refusal>>,
    },
    /// An operator wants the job ended.
    Stop,
}

/// Whom an injected fault struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Struck {
    /// Place.
    pub id: InstanceId,
    /// Which life.
    pub incarnation: Incarnation,
    /// Its process.
    pub pid: u32,
}

/// Why a link is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fenced: incarnation {0} is not a current one")]
pub struct Fenced(pub Incarnation);
