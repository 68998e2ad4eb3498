//! The single controller's work on the trainer gang: one step, one call after the other, each fanned
//! out by the dispatch table ([`robust_shared::dispatch`]).
//!
//! ```text
//!  prepare:  finished prompts ─► old (split), kept for the step
//!  train:    trajectories ─► batch ─► old (split, what is missing) ─► advantages ─► update (split) ─► snapshot (all)
//!  restore:  the newest state that is whole somewhere, and the steps after it trained again
//!  publish:  publish (all); the manifests must agree
//! ```
mod calls;
mod collate;
mod dataset;
mod event;
mod gang;
mod old;
mod restore;
mod step;
mod wire;

pub(crate) use wire::shard_from_wire;

pub use calls::{CallError, GangCalls};
pub use collate::{CollateError, collate};
pub use dataset::{DatasetError, Prompt, Prompts, read_dataset};
pub use event::GangWorkEvent;
pub use gang::{Gang, StepError, Trains};
pub use old::{Ahead, Rows, prepare};
pub use restore::{
    Again, Disk, Far, Memory, Needed, Origin, PeerHolder, PeerMemory, PeerView, Peers, Progress,
    Replayed, Source, Way, restore,
};
pub use step::{StepOutcome, publish, train};
