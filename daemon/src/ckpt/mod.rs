//! Background persistence: from the trainer's snapshot slots in shared memory to disk.
//!
//! ```text
//!  slot ──copied, hashed on the way──► rank-N.tmp ──fsync, rename──► rank-N.safetensors ─┐ all ranks
//!                                 index in sled ◄── manifest.json, last: it exists now ◄─┘
//! ```
//! The format on disk is [`robust_ckpt`]'s. With `[checkpoint] written_by = "nodes"` nothing is written here: `by_nodes`.
//!
//! The trainer never waits for this. Slots are double-buffered, so a slot is overwritten two steps
//! later: a copy whose digest does not match the snapshot's is dropped, and a step offered while
//! an earlier one is still being written is skipped and counted, never queued.
mod by_nodes;
mod corrupt;
mod error;
mod put;
mod remote;
mod room;
mod save;
#[cfg(test)]
mod tests;
mod worker;
mod write;

pub use by_nodes::{ByNodes, Hand, Putting};
pub use corrupt::corrupt_newest;
pub use error::WriteError;
pub use put::{InMemory, put_shard};
pub use remote::{RemoteConfig, RemoteStanding, Uploader};
pub use worker::{Checkpointer, Turn};

use robust_ckpt::Retention;
use robust_ckpt::disk::Disk;
use robust_remote::RemoteError;
use robust_shared::core::Severity;
use robust_shared::dispatch::calls::Shard;
use robust_shared::ids::{Generation, Step, TrajectoryId};
use robust_shared::weights::TensorSpec;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A committed step to be written to disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The step.
    pub step: Step,
    /// The gang that made it.
    pub generation: Generation,
    /// All ranks' snapshots, in rank order.
    pub shards: Vec<Shard>,
    /// The trajectories its step consumed.
    pub consumed: Vec<TrajectoryId>,
    /// Mean reward of its batch.
    pub reward: Option<f64>,
    /// The model's tensors in the flat buffer, where known.
    pub tensors: Vec<TensorSpec>,
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
        /// The gang that made it.
        generation: Generation,
        /// Bytes of all shards.
        bytes: u64,
        /// Of these, those that an earlier checkpoint had already: linked, not written.
        unchanged: u64,
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
        error: WriteError,
    },
    /// There is no room for the step's checkpoint, and none is written until there is.
    Paused {
        /// The step.
        step: Step,
        /// Bytes left.
        free: u64,
        /// Bytes that must be free.
        wanted: u64,
    },
    /// There is room again; the next step offered is written.
    Resumed {
        /// Bytes left.
        free: u64,
    },
    /// A checkpoint is in the object store.
    Uploaded {
        /// The step.
        step: Step,
        /// Bytes of all shards.
        bytes: u64,
        /// From the begin to the manifest.
        took: Duration,
        /// Which store.
        url: String,
    },
    /// A checkpoint is in the object store, put by those who held its shards.
    Put {
        /// The step.
        step: Step,
        /// The gang that made it.
        generation: Generation,
        /// Bytes of all shards.
        bytes: u64,
        /// From the offer to the manifest.
        took: Duration,
        /// Which store.
        url: String,
        /// Who put them; nobody where all was there already.
        by: Vec<String>,
    },
    /// A checkpoint is not in the object store; the next one is another chance.
    NotUploaded {
        /// The step.
        step: Step,
        /// Which store.
        url: String,
        /// Why.
        error: RemoteError,
    },
    /// The checkpoints are well, the index or old folders are not.
    Untidy(String),
}

impl CkptEvent {
    /// How grave it is.
    pub fn severity(&self) -> Severity {
        match self {
            Self::Written { .. }
            | Self::Resumed { .. }
            | Self::Uploaded { .. }
            | Self::Put { .. } => Severity::Info,
            Self::Failed { .. }
            | Self::Paused { .. }
            | Self::NotUploaded { .. }
            | Self::Untidy(_) => Severity::Warn,
        }
    }
}

impl fmt::Display for CkptEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Written {
                step,
                generation: _,
                bytes,
                unchanged,
                took,
                direct,
            } => {
                let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
                let (s, how) = (
                    took.as_secs_f64(),
                    if *direct { "direct" } else { "buffered" },
                );
                write!(
                    f,
                    "checkpoint of step {step}: {:.1} MiB in {s:.2} s ({how})",
                    mib(*bytes)
                )?;
                match unchanged {
                    0 => Ok(()),
                    some => write!(f, ", {:.1} MiB of it unchanged and linked", mib(*some)),
                }
            }
            Self::Failed { step, error } => {
                write!(f, "no checkpoint of step {step}: {error}; the job goes on")
            }
            Self::Paused { step, free, wanted } => write!(
                f,
                "no room for the checkpoint of step {step} ({} MiB left, {} MiB wanted): none is \
                 written until there is; the job goes on",
                free >> 20,
                wanted.div_ceil(1 << 20)
            ),
            Self::Resumed { free } => {
                let mib = free >> 20;
                write!(f, "there is room for checkpoints again ({mib} MiB left)")
            }
            Self::Uploaded {
                step,
                bytes,
                took,
                url,
            } => {
                let (mib, s) = (*bytes as f64 / f64::from(1 << 20), took.as_secs_f64());
                write!(
                    f,
                    "checkpoint of step {step} is in {url}: {mib:.1} MiB in {s:.2} s"
                )
            }
            Self::Put {
                step,
                bytes,
                took,
                url,
                by,
                ..
            } => {
                let (mib, s) = (*bytes as f64 / f64::from(1 << 20), took.as_secs_f64());
                let by = match by.is_empty() {
                    true => "which had it already".to_owned(),
                    false => format!("put by {}", by.join(", ")),
                };
                write!(
                    f,
                    "checkpoint of step {step} is in {url}: {mib:.1} MiB in {s:.2} s, {by}"
                )
            }
            Self::NotUploaded { step, url, error } => {
                write!(
                    f,
                    "the checkpoint of step {step} is not in {url}: {error}; the job goes on"
                )
            }
            Self::Untidy(what) => f.write_str(what),
        }
    }
}

/// Where checkpoints go and how many stay.
#[derive(Clone, Debug)]
pub struct Config {
    /// The folder, `STATE/ckpt`.
    pub dir: PathBuf,
    /// Which stay.
    pub keep: Retention,
    /// What its files are written through.
    pub disk: Arc<dyn Disk>,
}
