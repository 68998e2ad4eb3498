//! The leader's side of the job's other nodes: who may join, and what they may read.
//!
//! ```text
//!  node ── TLS 1.3, both certified by what they derive of the token ── Join ──► handshake ──► driver admits it
//!                                                                                            │
//!   RoleHost of its roles, ReadFile, ReadShard, KeepShard: only with the session's key ◄── session opens
//! ```
//! Nothing is decided here: what a node says becomes events, what the driver wants of it goes
//! down the stream.
mod digests;
mod event;
mod files;
mod outgoing;
mod proof;
mod sealed;
mod service;
mod sessions;
mod shards;
mod strength;
mod wanted;

pub use digests::Digests;
pub use event::{NodeLinkEvent, NodeRefused};
pub use files::{JobFiles, PART_BYTES};
pub use outgoing::{parts_of, taken};
pub use proof::{Handshake, JobToken, NONCE_BYTES, Secret, SecretError, Side, nonce};
pub use sealed::{IN_ALL, OF_ONE_ADDRESS, PATIENCE, sealed};
pub use service::{Joined, NodeHostService, Orders};
pub use sessions::{SESSION_HEADER, SessionCheck, Sessions};
pub use shards::{Expected, ShardError, Shards};
pub use wanted::RankThere;

use std::time::Duration;

/// How long a handshake may take.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often an idle connection is tried.
pub const KEEPALIVE: Duration = Duration::from_secs(1);
/// A connection that does not answer for so long is broken.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
