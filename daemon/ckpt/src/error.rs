//! Why a checkpoint could not be written, read or exported.
use std::io;
use std::path::{Path, PathBuf};

/// Why a checkpoint could not be written, read or exported.
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
    /// A file is there and not what it should be.
    #[error("{path}: {reason}")]
    Bad {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl CkptError {
    /// Makes one of an I/O error; a full disk is told from the others.
    pub fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
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

    /// A file that is there and wrong.
    pub fn bad(path: &Path, reason: impl Into<String>) -> Self {
        let (path, reason) = (path.to_owned(), reason.into());
        Self::Bad { path, reason }
    }
}
