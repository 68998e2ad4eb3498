//! What changed, instead of all of it.
//!
//! ```text
//!   publisher: v6, v7 here          relay: serves v6              puller: serves v6
//!     begin ─► thread                 Passing::open                 Passing::open
//!        chunk by chunk: encode         │                             │
//!     index ready ─────────────────────►│ index ready ───────────────►│
//!     patches ready ───────────────────►│ v6 + patch, digest right    │
//!                                       │ chunk ready, patch ready ──►│ v6 + patch, digest right
//!     chunks without a patch ══════════►│ ═══════════════════════════►│ as in any pull
//! ```
//! In an RL step with bfloat16 all but a few of the weights keep their value: the update is less than
//! half of what the last bit stands for. So who serves the version before gets, for every chunk that
//! changed, what changed in it (see `code`), if that is shorter. The manifest's digest is of the chunk
//! that comes of it, so a patched version is verified as strictly as one that came whole, and serves
//! others in the same way.
//!
//! # Rules
//! - **P-1** A patch is never believed: the chunk that it makes is verified as any other, and comes whole
//!   if it is wrong.
//! - **P-2** Readers wait for patches for a few seconds at most (`build`): who has none any more, or never
//!   will, refuses, and readers ask for whole chunks.
//! - **P-3** A relay passes on every patch that it got, also one that made nothing good there: what is wrong
//!   may be its own memory, and its readers check for themselves.
//! - **P-4** Patches are made beside a publisher's work and never hold it up: it stops them when it needs
//!   the older version's memory.
mod build;
mod code;
mod hand_out;
mod index;
mod take;

use robust_transport::RegionKey;

pub(crate) use build::Patches;
pub use build::{Version, compare};
pub(crate) use take::{NotTaken, Part, Passing, Take};

/// Patches that can be read somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// What they are applied to, by `Manifest::content_digest`.
    pub base: [u8; 32],
    /// The region of their index; it leads to them.
    pub key: RegionKey,
}
