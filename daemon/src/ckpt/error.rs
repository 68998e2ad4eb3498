//! Why a checkpoint was not written.
use crate::store::StoreError;
use std::io;
use std::path::{Path, PathBuf};

/// Why a checkpoint was not written.
#[derive(Debug, thiserror::Error)]
pub enum CkptError {
    /// The slot was overwritten meanwhile, or never held what the snapshot said.
    #[error("the snapshot {path} changed while it was copied ({detail})")]
    Torn {
        /// The slot.
        path: PathBuf,
        /// What differs.
        detail: String,
    },
    /// No space, quota or file size left.
    #[error("no space for {path}: {source}")]
    Full {
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// Reading or writing failed.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The checkpoint is complete, its index entry is not durable.
    #[error("the index of checkpoints: {0}")]
    Index(#[from] StoreError),
}

impl CkptError {
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Self::Full { path, source },
            _ => Self::Io {
                doing,
                path,
                source,
            },
        }
    }
}
