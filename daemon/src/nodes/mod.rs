//! The leader's side of the job's other nodes: who may join, and what they may read.
//!
//! ```text
//!  machine ── TLS 1.3, both certified by a join token ── Enroll ──► members: a certificate for the machine's own key
//!
//!  node ── TLS 1.3, each with its certificate by the leader ── Join ──► which node it is, what it has ──► driver admits it
//!                                                                                                         │
//!            RoleHost of its roles, ReadFile, Read-, Keep-, FindShard: only with the session's key ◄── session opens
//! ```
//! Nothing is decided here: what a node says becomes events, what the driver wants of it goes
//! down the stream.
mod authorities;
mod authority;
mod event;
mod join_token;
mod members;
mod outgoing;
mod outside;
mod places;
mod proven;
mod puts;
mod sealed;
mod service;
mod sessions;
mod shards;
mod shown;
mod strength;
mod wanted;

pub use authorities::{Authorities, AuthoritiesError, Held, Shows, Stage};
pub use authority::{JobSecret, JobToken};
pub use event::{NodeLinkEvent, NodeRefused};
pub use join_token::{JoinToken, JoinTokenError};
pub use members::{
    Created, LONGEST_NAME, LONGEST_TTL_S, Listed, ListedNode, Members, MembersError,
};
pub use outgoing::{ShardDigests, parts_noted, parts_of, taken};
pub use outside::{OutsideFiles, OutsideFilesError, OutsidePaths};
pub use places::{Bringing, Places, key_of};
pub use proven::{Proven, TokenId};
pub use puts::{ExpectedPut, Puts};
pub use sealed::{IN_ALL, OF_ONE_ADDRESS, PATIENCE, Peer, proven_connections, sealed};
pub use service::{Joined, NodeHostService, Orders};
pub use sessions::{SESSION_HEADER, SessionCheck, Sessions};
pub use shards::{Brought, Expected, Pinned, ShardError, Shards};
pub use wanted::RankThere;

use std::time::Duration;

/// How long whoever joins, and whoever is joined, may take for each word before the welcome.
pub const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often an idle connection is tried.
pub const KEEPALIVE: Duration = Duration::from_secs(1);
/// A connection that does not answer for so long is broken.
pub const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(5);

/// Unix time, in milliseconds.
pub fn unix_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
