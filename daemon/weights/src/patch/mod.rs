//! What changed, instead of all of it.
//!
//! ```text
//!   publisher: v6, v7 here          relay: serves v6              puller: serves v5
//!     begin ─► thread                 Passing::open                 Passing::open
//!        chunk by chunk: encode         │                             │
//!     index v6-v7 ready ───────────────►│ index v6-v7 ready ─────────►│
//!     patches ready ───────────────────►│ v6 + patch, digest right    │
//!     kept, for those behind:           │ kept, as it led to v6:      │
//!       v5-v6, v4-v5, ..                │   v5-v6 ───────────────────►│
//!                                       │ chunk ready, patch ready ──►│ v5 + patch + patch, digest right
//!     chunks without a patch ══════════►│ ═══════════════════════════►│ as in any pull
//! ```
//! In an RL step with bfloat16 all but a few of the weights keep their value: the update is less than
//! half of what the last bit stands for. So who serves the version before gets, for every chunk that
//! changed, what changed in it (see `code`), if that is shorter. The manifest's digest is of the chunk
//! that comes of it, so a patched version is verified as strictly as one that came whole, and serves
//! others in the same way.
//!
//! The patches of the last versions are kept (see `chain`), not the versions. Whoever serves an older one
//! gets all that lead from there to the new one, and applies them to each chunk in turn while it is in the
//! cache. What the versions in between were nobody asks: only the last one's digest counts.
//!
//! # Rules
//! - **P-1** A patch is never believed: the chunk that it makes is verified as any other that came from
//!   another machine, by XXH3 and BLAKE3, and comes whole if it is wrong.
//! - **P-2** Readers wait for patches for a few seconds at most (`build`): who has none any more, or never
//!   will, refuses, and readers ask for whole chunks.
//! - **P-3** A relay passes on every patch that it got, also one that made nothing good there: what is wrong
//!   may be its own memory, and its readers check for themselves.
//! - **P-4** Patches are made beside a publisher's work and never hold it up: it stops them when it needs
//!   the older version's memory.
//! - **P-5** The patches of a version have a quarter of its bytes at most, and those of all versions before
//!   it as much together: the oldest go first.
mod build;
mod chain;
mod code;
mod hand_out;
mod index;
mod passing;
mod take;

pub(crate) use build::Patches;
pub use build::{Version, compare};
pub(crate) use chain::{Chain, since};
pub(crate) use passing::Passing;
pub(crate) use take::{Filled, NotTaken, Part, Take};
