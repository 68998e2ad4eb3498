//! Everything that the decision loop hears of, a type a source.
//!
//! ```text
//!  launcher ─ LaunchEvent     links ─── LinkEvent, RouteEvent    operators ─ OperatorEvent
//!  nodes ──── NodeLinkEvent   gang ──── GangWorkEvent            services ── ServiceEvent
//!  store ──── StoreEvent      writer ── CkptEvent                telemetry ─ Samples
//!  timers ─── TimerEvent      probes, commands, evidence ─────────────────── ProcessEvent
//!                     each wrapped once ──► Event ──► arrivals.rs ──► Input
//! ```
use super::change::{Change, Revision};
use super::dispatched::Loaded;
use super::inspect::{InspectAnswer, ProbeAnswer};
use super::logs::LogAnswer;
use crate::ckpt::CkptEvent;
use crate::control::GangWorkEvent;
use crate::launcher::{self, Depth, LaunchEvent, Running};
use crate::links::{LinkEvent, RouteEvent};
use crate::nodes::NodeLinkEvent;
use crate::services::ServiceEvent;
use crate::store::Condition;
use crate::telemetry::Samples;
use crate::worker::Life;
use robust_proto::v1;
use robust_shared::core::{Core, Refusal, Reply, Request, Trajectory};
use robust_shared::fault::{At, Fault};
use robust_shared::ids::{Incarnation, InstanceId, Role, Step, TrajectoryId};
use robust_shared::time::Time;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// The way to the driver. Unbounded: whoever tells the driver something may hold a lease that the
/// next holder waits for, so telling must never wait for the driver.
pub type Events = mpsc::UnboundedSender<Event>;

/// What the loop waits for.
#[derive(Debug)]
pub enum Event {
    /// From the launcher.
    Launch(LaunchEvent),
    /// From the links to role processes.
    Link(LinkEvent),
    /// Of requests for a rollout.
    Route(RouteEvent),
    /// From the streams of other nodes.
    Node(NodeLinkEvent),
    /// From operators.
    Operator(OperatorEvent),
    /// From what was begun about one process.
    Process(ProcessEvent),
    /// From the gang's tasks.
    GangWork(GangWorkEvent),
    /// Of the job's services.
    Service(ServiceEvent),
    /// Of the store and other files.
    Store(StoreEvent),
    /// From the checkpoint writer.
    Checkpoint(CkptEvent),
    /// From the telemetry.
    Samples(Box<Samples>),
    /// From the clock.
    Timer(TimerEvent),
}

/// An operator wants something.
#[derive(Debug)]
pub enum OperatorEvent {
    /// An instance struck.
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
    /// Something of the core.
    Ask {
        /// What.
        request: Request,
        /// Told what is done, or why nothing is.
        answer: oneshot::Sender<Result<Reply, Refusal>>,
    },
    /// What the controller has of a trajectory.
    Look {
        /// Which.
        id: TrajectoryId,
        /// Told the last committed step and the trajectory; none: its batch is not open, none within: it has no such.
        answer: oneshot::Sender<(Step, Option<Option<Trajectory>>)>,
    },
    /// The controller as it is now, to be run ahead.
    Copy {
        /// Told a copy of it, and the time.
        answer: oneshot::Sender<Box<(Core, Time)>>,
    },
    /// A part of a log.
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
    /// What a process does now.
    Inspect {
        /// Whose.
        incarnation: Incarnation,
        /// How deep it is looked.
        depth: Depth,
        /// Told what was found.
        answer: InspectAnswer,
    },
    /// Whether a process answers.
    Probe {
        /// Whose.
        incarnation: Incarnation,
        /// An engine is to take requests now: no is no answer then.
        serves: bool,
        /// Told what it says to each way of asking.
        answer: ProbeAnswer,
    },
    /// A role changed.
    Change {
        /// Which.
        role: Role,
        /// How.
        change: Change,
        /// Told when it comes, or why it does not.
        answer: oneshot::Sender<Result<Reply, Refusal>>,
    },
    /// The job ended.
    Stop,
}

/// What was begun about a process came to its end.
#[derive(Debug)]
pub enum ProcessEvent {
    /// A process of this node is started, or is not.
    Started {
        /// Whose.
        life: Box<Life>,
        /// The process, or why there is none.
        started: Result<Running, String>,
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
        found: launcher::Evidence,
    },
    /// A process that was asked to end has had its time.
    Overstayed {
        /// Which life.
        incarnation: Incarnation,
    },
}

/// What the store and other files came to.
#[derive(Debug)]
pub enum StoreEvent {
    /// The database's condition changed.
    Condition(Condition),
    /// What is stored of a trajectory that was given to an agent is read.
    Loaded(Loaded),
    /// A revision of the job is written, or cannot be.
    Revised {
        /// Which.
        revision: Box<Revision>,
        /// Its text, or why not.
        written: Result<Arc<str>, String>,
    },
}

/// A time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerEvent {
    /// The core's or the services'.
    Timeout,
    /// That of the status.
    StatusDue,
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

impl From<Loaded> for Event {
    fn from(loaded: Loaded) -> Self {
        StoreEvent::Loaded(loaded).into()
    }
}

/// Each source's events come into the loop as these.
macro_rules! wrapped {
    ($($event:ty => $variant:ident,)+) => {
        $(impl From<$event> for Event {
            fn from(event: $event) -> Self {
                Self::$variant(event)
            }
        })+
    };
}

wrapped! {
    LaunchEvent => Launch,
    LinkEvent => Link,
    RouteEvent => Route,
    NodeLinkEvent => Node,
    OperatorEvent => Operator,
    ProcessEvent => Process,
    GangWorkEvent => GangWork,
    ServiceEvent => Service,
    StoreEvent => Store,
    CkptEvent => Checkpoint,
    TimerEvent => Timer,
}
