//! Background persistence: from the trainer's snapshot slots in shared memory to disk.
//!
//! ```text
//! STATE/ckpt/step-7/rank-0.safetensors   copied from a slot, hashed on the way, fsync, rename
//!                   rank-1.safetensors
//!                   manifest.json        written last: the checkpoint exists when this does
//! ```
//! The trainer never waits for this. Slots are double-buffered, so a slot is overwritten two steps
//! later: a copy whose digest does not match the snapshot's is dropped, and a step offered while
//! an earlier one is still being written is skipped and counted, never queued.
mod error;
mod find;
mod manifest;
pub mod staging;
#[cfg(test)]
mod tests;
mod worker;
mod write;

pub use error::CkptError;
pub use find::{Found, newest_at_most, newest_complete};
pub use worker::Checkpointer;
pub use write::digest;

use robust_shared::core::Severity;
use robust_shared::ids::{Generation, Step, TrajectoryId};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A file that holds one rank's shard, and what it must contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Whose.
    pub rank: u32,
    /// The file: a snapshot slot, or a file of a checkpoint.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// XXH3-64 over all of it.
    pub xxh3: u64,
}

/// A committed step to be written to disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The step.
    pub step: Step,
    /// The gang that made it.
    pub generation: Generation,
    /// All ranks' slots, in rank order.
    pub shards: Vec<Shard>,
    /// The trajectories its step consumed.
    pub consumed: Vec<TrajectoryId>,
}

/// What became of an offered step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It is being written.
    Taken,
    /// An earlier one is still being written; this one is skipped.
    Behind,
}

/// What happened in the background. `Display` is a sentence for the event log.
#[derive(Debug)]
pub enum CkptEvent {
    /// A checkpoint is complete.
    Written {
        /// The step.
        step: Step,
        /// Bytes of all shards.
        bytes: u64,
        /// From the offer to the manifest.
        took: Duration,
        /// Whether the page cache was bypassed.
        direct: bool,
    },
    /// A step was not written; the job goes on with the checkpoints it has.
    Failed {
        /// The step.
        step: Step,
        /// Why.
        error: CkptError,
    },
    /// The checkpoints are well, the index or old folders are not.
    Untidy(String),
}

impl CkptEvent {
    /// How grave it is.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Written { .. } => Severity::Info,
            Self::Failed { .. } | Self::Untidy(_) => Severity::Warn,
        }
    }
}

impl fmt::Display for CkptEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Written {
                step,
                bytes,
                took,
                direct,
            } => {
                let mib = *bytes as f64 / f64::from(1 << 20);
                let (s, how) = (
                    took.as_secs_f64(),
                    if *direct { "direct" } else { "buffered" },
                );
                write!(
                    f,
                    "checkpoint of step {step}: {mib:.1} MiB in {s:.2} s ({how})"
                )
            }
            Self::Failed { step, error } => {
                write!(f, "no checkpoint of step {step}: {error}; the job goes on")
            }
            Self::Untidy(what) => f.write_str(what),
        }
    }
}

/// A complete checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The step.
    pub step: Step,
    /// The gang that made it.
    pub generation: Generation,
    /// Its folder.
    pub dir: PathBuf,
    /// Its files, in rank order.
    pub shards: Vec<Shard>,
    /// The trajectories its step consumed.
    pub consumed: Vec<TrajectoryId>,
}

/// Where checkpoints go and how many stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The folder, `STATE/ckpt`.
    pub dir: PathBuf,
    /// How many complete ones to keep; at least one is kept.
    pub keep: usize,
}
