//! Checkpoints on disk.
//!
//! ```text
//! STATE/ckpt/step-7/rank-0.safetensors   rank 0's part of the weights and of the optimiser
//!                   rank-1.safetensors
//!                   manifest.json        written last: the checkpoint exists when this does
//!                   pinned               only where an operator wants it to stay
//! ```
//! A rank's file is a safetensors image with the flat F32 tensors `params`, `adam_m` and `adam_v` of
//! its range of the model's flat buffer (`first`, `count` of `elements` in the metadata). The
//! manifest has length and XXH3-64 of each, the trajectories that the step consumed (so that commit
//! and consumption are one act), the mean reward, and the tensors' places in the flat buffer.
//!
//! Nothing here needs a daemon: whoever can read the folder can list, verify, pin, collect and
//! export. The daemon writes them (`robustd::ckpt`).
mod aside;
pub mod disk;
mod error;
mod export;
pub mod files;
mod find;
pub mod folder;
pub mod image;
mod import;
pub mod manifest;
pub mod pin;
mod retention;
pub mod slot;
pub mod weight_files;

pub use aside::{Aside, aside, set_aside};
pub use error::CkptError;
pub use export::{Exported, export};
pub use find::{
    Found, Listed, folder_name, folders, list, newest_at_most, newest_complete, verify,
};
pub use import::{Imported, look_at};
pub use retention::{Known, Retention};
pub use weight_files::{StoredTensor, WeightFiles};

use robust_shared::ids::{Generation, Step, TrajectoryId};
use robust_shared::time::Time;
use robust_shared::weights::TensorSpec;
use std::path::PathBuf;

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

/// A complete checkpoint.
#[derive(Clone, Debug, PartialEq)]
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
    /// Mean reward of its batch.
    pub reward: Option<f64>,
    /// When its step was committed, by the daemon's clock.
    pub at: Option<Time>,
    /// Steps that the optimiser took; none where the images say it (version 1).
    pub adam_step: Option<u64>,
    /// The model's tensors in the flat buffer; empty where it was not known.
    pub tensors: Vec<TensorSpec>,
}

impl Checkpoint {
    /// Bytes of all shards.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|s| s.bytes).sum()
    }
}
