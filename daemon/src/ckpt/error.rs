//! Why a checkpoint was not written.
use crate::store::StoreError;

/// Why a checkpoint was not written, or its index not kept.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// Its files.
    #[error(transparent)]
    Files(#[from] robust_ckpt::CkptError),
    /// Not all of it is on this machine.
    #[error("not all shards of its snapshot are here: {0}")]
    Away(String),
    /// The checkpoint is complete, its index entry is not durable.
    #[error("the index of checkpoints: {0}")]
    Index(#[from] StoreError),
}
