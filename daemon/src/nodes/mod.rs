//! The leader's side of the job's other nodes: who may join, and what they may read.
//!
//! ```text
//!  node ── Join ──► handshake (both prove the token) ──► driver admits it ──► session opens
//!                                                                              │
//!   RoleHost of its roles, ReadFile, ReadShard, KeepShard: only with the session's key
//! ```
//! Nothing is decided here: what a node says becomes events, what the driver wants of it goes
//! down the stream. Neither side is protected against somebody who can change packets on the way:
//! that takes TLS. Hence nodes are listened for on loopback or on a network named as trusted.
mod digests;
mod event;
mod files;
mod outgoing;
mod proof;
mod service;
mod sessions;
mod shards;

pub use digests::Digests;
pub use event::{NodeLinkEvent, NodeRefused};
pub use files::{JobFiles, PART_BYTES};
pub use outgoing::{parts_of, taken};
pub use proof::{Handshake, JobToken, NONCE_BYTES, Secret, SecretError, Side, nonce};
pub use service::{Joined, NodeHostService, Orders};
pub use sessions::{SESSION_HEADER, SessionCheck, Sessions};
pub use shards::{Expected, ShardError, Shards};

use std::time::Duration;

/// How long a handshake may take.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often an idle connection is tried.
pub const KEEPALIVE: Duration = Duration::from_secs(1);
/// A connection that does not answer for so long is broken.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);
