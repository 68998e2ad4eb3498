//! A daemon that is a node of another one's job (`robustd --join`): hands, eyes and memory of the
//! leader on this machine. It has no core, no store and no word in any decision.
//!
//! ```text
//!  leader ══ Join ══► link.rs ──► Event ──► actor.rs ──► launcher, telemetry, memory.rs
//!     ▲                                        │ beats, exits, samples, evidence
//!     ╚════════════════════════════════════════╝
//!     ▲
//!     ╚══ RoleHost ══ proxy.rs ◄── STATE/roles.sock ◄── role processes
//!                       └── shards.rs: snapshots back here before a rank is told to restore them
//!  other nodes ══ ShardHost ══ exchange.rs: what is in this node's memory of them
//!  object store ◄══ puts.rs: what is in this node's memory, for a checkpoint
//!
//!  its life:     away ──connect, with its certificate──► joined ──job and files there──► ready
//!                 ▲ │ longer than daemon_grace: its roles end     │                        │
//!                 │ └─────────────────────────────────────────────┴── link broken, leader ─┘
//!                 └── 100 ms .. 1 s                                    restarted: roles live on
//! ```
mod actor;
#[cfg(test)]
mod actor_tests;
mod args;
mod credentials;
mod exchange;
mod files;
mod held;
mod link;
mod memory;
mod orders;
mod proxy;
mod puts;
mod relay;
mod renewal;
mod run;
mod shards;
mod spares;
mod starting;
mod way;

pub use args::{JoinArgs, NodeConfig, NodeConfigError};
pub use credentials::CredentialsError;
pub use memory::MemoryError;
pub use run::{NodeEnd, NodeError, NodeParts, run};

use robust_proto::v1;
use tokio::sync::{mpsc, oneshot, watch};
use tonic::transport::Channel;

/// The way to the leader, while the node is joined.
#[derive(Clone, Debug)]
struct Upstream {
    /// Its address.
    at: String,
    /// For links and small calls.
    channel: Channel,
    /// For files, so that they delay no beat.
    bulk: Channel,
    /// Whether nodes give shards to each other: then those of ranks here stay here.
    gives: bool,
    /// The session's key.
    session: tonic::metadata::AsciiMetadataValue,
}

/// The present way to the leader, seen by the proxy.
type UpstreamWatch = watch::Receiver<Option<Upstream>>;

impl Upstream {
    /// A request that shows the session.
    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert(crate::nodes::SESSION_HEADER, self.session.clone());
        request
    }
}

/// What a node tells a leader that greets it.
#[derive(Clone, Debug, Default)]
struct Standing {
    identity: String,
    running: Vec<u64>,
    ended: Vec<v1::RoleExited>,
    held: Vec<v1::HeldShard>,
}

/// A leader of an earlier term than one that was joined here: it was deposed, and may not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it leads in epoch {epoch}, and this node was joined to a leader of epoch {joined}")]
struct EarlierTerm {
    epoch: u64,
    joined: u64,
}

/// What the link hears.
#[derive(Debug)]
enum LinkEvent {
    /// A leader proved itself; it leads this life of a job.
    Greeted {
        run: String,
        epoch: u64,
        answer: oneshot::Sender<Result<Standing, EarlierTerm>>,
    },
    /// The node is joined, and watched from now on.
    Joined {
        up: mpsc::UnboundedSender<v1::NodeMessage>,
        upstream: Upstream,
        advertise: std::net::IpAddr,
    },
    /// Everything a role needs is here: its job, and what the job's roles prove to each other.
    Ready {
        job: Box<robust_shared::job::Job>,
        token: crate::nodes::JobToken,
    },
    /// The leader wants something.
    Order(v1::leader_message::Body),
    /// The link broke; it is tried again.
    Lost { reason: String },
    /// The leader will not have this node, or is none.
    Refused { reason: String },
}
