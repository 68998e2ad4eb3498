//! Weight versions from those who have them to those who need them.
//!
//! ```text
//!   Order(version, manifest, sources)          one thread per source
//!        │                                     ┌──────────────────────────────────────────┐
//!        ▼                                     │ Transport::fetch, a piece = one chunk     │
//!   spare slot of another version?             │ arrived ─► digest ─┬─► ready: others read │
//!     withdraw its region; keep what is equal, │                    └─► wrong: give it up  │
//!     here or in the served slot               └──────────────┬───────────────────────────┘
//!        │                                                    │ all verified
//!        ▼                                                    ▼
//!   region open: Observer::started                    Observer::swap ─► served ─► Observer::done
//!
//!   trainer rank 0 ──┐
//!                    ├──► A ──► B ──► C        each reads what the one before has verified;
//!   trainer rank 1 ──┘                         a read of a chunk that is not there yet waits
//! ```
//! Happy path: an order names the sources, each with the bytes that it has for us; they are read at
//! once, chunk by chunk, and each verified chunk can be read by others in the same moment. So a
//! chain of N pullers takes the time of one plus a chunk's per member.
//!
//! Several trainer ranks fill a relay from several places at once. Who reads there is told these
//! places ([`Source::starts`]) and follows each with a fetch of its own, up to four; read from start
//! to end, the relay of two ranks could be followed at half its speed only.
//!
//! Who serves one of the versions before gets, of chunks that changed a little, what changed in them since:
//! see `patch`.
//!
//! The program `robust-weights` is a source or a puller in a process of its own, which is told what to do by [`lines`].
//!
//! # Rules
//! - **W-1** Only a version whose every chunk was verified here is swapped to and served (I-4): by XXH3,
//!   and what came from another machine by BLAKE3, too. A manifest without BLAKE3 brings nothing from there.
//! - **W-2** Others can read a chunk only after it was verified here; until another version is
//!   ordered its bytes do not change.
//! - **W-3** What was verified stays, whichever source it came from and however the pull ended; a
//!   next order fetches the rest. A successor version keeps the chunks that it has in common with
//!   what is here, be it in the spare or the served slot.
//! - **W-4** The first source that fails ends the order, named in its error, so that whoever gives
//!   orders knows at once; what arrived of the others stays. One that sent wrong bytes is not asked
//!   for more. A failure on this side blames nobody.
//! - **W-5** What is served does not change until the next version is complete.
//! - **W-6** The newest order counts. Every order gets exactly one [`Observer::done`].
//! - **W-7** Bytes that changed here after they were verified are kept for nobody: a swap that finds some
//!   ([`SwapError::Damaged`]) ends the order, and the next one fetches the version anew, whole.
mod fetching;
mod lanes;
pub mod lines;
pub mod made_up;
mod meter;
mod names;
mod patch;
mod publisher;
mod pull;
mod puller;
mod scrub;
mod slots;
mod turns;
mod types;

pub use patch::{Version, compare};
pub use publisher::{Layout, PublishError, Publisher};
pub use puller::Puller;
pub use scrub::{Scrubbed, wrong_chunks};
pub use slots::Slots;
pub use types::{
    Link, Observer, Order, Progress, PullError, PullErrorKind, Served, Source, SwapError,
};
