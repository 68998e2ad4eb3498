//! Weights into the engine, and the proof that they are there.
//!
//! ```text
//!   pull, verified chunk by chunk ──► Files: a model folder in shared memory
//!                                        │ Loader::swap
//!            pause, if requests run ◄────┤
//!            the engine loads the folder │
//!            resume ◄────────────────────┤    what it says from here on waits at the gate
//!            version, checksums, canary ─┤
//!                    │ all as published  │ anything else: once more, then the engine is ended
//!                    ▼                   ▼
//!                 verified            refused
//! ```
//! An answer of 200 is no proof: vLLM on a CPU keeps a tied output head when it reloads, SGLang serves
//! old keys and values unless its cache is flushed, and both say 200.

mod bound;
mod checksums;
mod error;
mod files;
mod give;
mod header;
mod load;
mod plugin;
mod verify;

pub use bound::Bound;
pub use error::LoadError;
pub use files::{Files, FilesError, Readers};
pub(crate) use give::PAUSE;
pub(crate) use load::{ATTEMPTS, Newest};
pub use load::{Loader, Settings};
pub use verify::{NotVerified, Published};
