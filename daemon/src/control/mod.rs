//! The single controller's work on the trainer gang: one step, one call after the other, each fanned
//! out by the dispatch table ([`robust_shared::dispatch`]).
//!
//! ```text
//!  train:    trajectories ─► batch ─► old (split) ─► advantages ─► update (split) ─► snapshot (all)
//!  restore:  snapshot in memory, else checkpoint of that very step, else the initial weights
//!  publish:  publish (all); the manifests must agree
//! ```
mod calls;
mod collate;
mod dataset;
mod gang;
mod report;
mod step;
mod wire;

pub use calls::{CallError, GangCalls};
pub use collate::{CollateError, collate};
pub use dataset::{DatasetError, Prompt, Prompts, read_dataset};
pub use gang::{Gang, StepError};
pub use report::{first_and_last, report};
pub use step::{RestoreFrom, StepOutcome, publish, restore, train};
