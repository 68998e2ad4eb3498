//! What is heard of role processes over their links, and of requests for a rollout.
use super::{Down, LinkId, Via};
use robust_proto::v1;
use robust_shared::ids::{Incarnation, TrajectoryId};
use tokio::sync::oneshot;

/// One thing that happened at a link.
#[derive(Debug)]
pub enum LinkEvent {
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
    Closed {
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
        /// The number of the lease under which it was stored.
        lease: u64,
    },
}

/// One thing that happened to a request for a rollout.
#[derive(Debug)]
pub enum RouteEvent {
    /// An agent wants a rollout.
    Wanted {
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
    WantedByClient {
        /// Names the request.
        ticket: u64,
        /// The rollout that failed the same request before.
        avoid: Option<Incarnation>,
        /// Told where to go.
        answer: oneshot::Sender<v1::RouteReply>,
    },
    /// A request for a rollout is over.
    Released {
        /// Which.
        ticket: u64,
        /// The rollout broke it off.
        broken: bool,
    },
}

/// Why a link is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fenced: incarnation {0} is not a current one")]
pub struct Fenced(pub Incarnation);
