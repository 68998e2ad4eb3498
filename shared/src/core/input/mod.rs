//! Everything that can happen to the controller, by whom it happens to: the families that the `door`
//! fences.
mod gang;
mod node;
mod request;
mod role;

pub use gang::*;
pub use node::*;
pub use request::*;
pub use role::*;

use crate::core::roster::nodes::NodeSpec;
use crate::ids::{Generation, Incarnation, InstanceId, NodeId};
use serde::{Deserialize, Serialize};

/// One thing that happened. Given to [`super::Core::handle`] with the time it happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Input {
    /// The driver is ready: start the job (or go on, after [`super::Output`]).
    Start,
    /// The time given by [`super::Core::next_timeout`] has come.
    Timeout,
    /// The driver stood still for longer than [`super::STALL`]: its process was stopped, or its machine. What others
    /// said meanwhile comes after this.
    StoodStill,
    /// Something happened to an instance's process.
    Role(Incarnation, RoleEvent),
    /// The gang answered a call, or ended.
    Gang(Generation, GangEvent),
    /// Something happened to a node.
    Node(NodeId, NodeEvent),
    /// A node joined the job, or came back to it; what runs there and is not current is fenced.
    NodeJoined {
        /// What it has. A name that is known is the node of that name.
        node: NodeSpec,
        /// The role processes that live there.
        running: Vec<Incarnation>,
    },
    /// A client of the router wants a rollout; it has no lease, and no trajectory of the job's.
    ClientRouteRequested {
        /// Names the request in the answer.
        ticket: Ticket,
        /// The rollout that failed the same request before: taken only where no other is fit.
        avoid: Option<Incarnation>,
    },
    /// The turn ended (well or not); the rollout has one request fewer.
    RouteReleased {
        /// The request.
        ticket: Ticket,
        /// The rollout broke it off.
        #[serde(default)]
        broken: bool,
    },
    /// A service is given up that the job cannot do without: the job fails.
    ServiceLost {
        /// Which, and why.
        reason: String,
    },
    /// An operator wants something; the answer has the same ticket.
    Operator(Ticket, Request),
    /// The job shall end. Nobody waits for an answer: its end is one.
    Stop,
}

/// Names a request in its answer; whoever asks chooses it.
pub type Ticket = u64;

/// Names an instance in status and events.
pub type Who = InstanceId;
