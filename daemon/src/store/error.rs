//! Why the store refuses or fails.
use robust_grouplog::LogError;
use robust_shared::ids::{Step, TrajectoryId};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why the store refuses or fails. Cloned to every writer of a failed group.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Two daemons on one state directory would corrupt it.
    #[error("another robustd (pid {}) uses this state directory {dir}; stop it or choose another \
             directory", pid.map_or_else(|| "unknown".to_owned(), |p| p.to_string()))]
    Locked {
        /// The state directory.
        dir: PathBuf,
        /// The holder, as it wrote itself into the lock file.
        pid: Option<u32>,
    },
    /// Written by a later robustd, which this one must not touch.
    #[error(
        "the database {path} has schema {found}, this robustd knows up to {supported}; use the \
             robustd that wrote it, or move {path} away to start anew"
    )]
    TooNew {
        /// The database.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The newest schema known here.
        supported: u32,
    },
    /// No space, quota or file size left.
    #[error("no space for {path}: {source}; free some, writes are tried again by themselves")]
    Full {
        /// The database.
        path: PathBuf,
        /// The system's words.
        source: Arc<io::Error>,
    },
    /// Reading or writing failed.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// The system's words.
        source: Arc<io::Error>,
    },
    /// The database contradicts itself.
    #[error("the database {path} is damaged: {detail}; restart robustd, which sets it aside")]
    Corrupt {
        /// The database.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// A turn came before the one it follows.
    #[error("trajectory {trajectory}: turn {got} cannot be stored before turn {expected}")]
    TurnGap {
        /// Which.
        trajectory: TrajectoryId,
        /// The turn that is due.
        expected: u32,
        /// The turn that came.
        got: u32,
    },
    /// Tokens of a turn came before those they follow.
    #[error(
        "trajectory {trajectory}, turn {turn}: tokens from {got} on cannot be stored after {expected}"
    )]
    SpanGap {
        /// Which.
        trajectory: TrajectoryId,
        /// Which of its turns.
        turn: u32,
        /// Tokens that are stored of it.
        expected: u32,
        /// Where those that came begin.
        got: u32,
    },
    /// The end came in the middle of a turn.
    #[error("trajectory {trajectory} cannot be finished: turn {turn} is under way")]
    TurnOpen {
        /// Which.
        trajectory: TrajectoryId,
        /// The turn of which tokens are stored.
        turn: u32,
    },
    /// A further turn for a trajectory that has its end.
    #[error("trajectory {trajectory} is finished; turn {index} comes too late")]
    AfterFinish {
        /// Which.
        trajectory: TrajectoryId,
        /// The late turn.
        index: u32,
    },
    /// The end names a number of turns that is not stored.
    #[error("trajectory {trajectory} cannot be finished: {stored} turns stored, {named} named")]
    TurnCount {
        /// Which.
        trajectory: TrajectoryId,
        /// Stored.
        stored: u32,
        /// Named by the end.
        named: u32,
    },
    /// I-3: a trajectory is consumed by exactly one step.
    #[error("step {again} cannot consume trajectory {trajectory}: step {by} did")]
    ConsumedTwice {
        /// Which.
        trajectory: TrajectoryId,
        /// The step that consumed it.
        by: Step,
        /// The step that wants it too.
        again: Step,
    },
    /// A value could not be turned into bytes.
    #[error("cannot encode {what}: {detail}")]
    Encode {
        /// Which value.
        what: &'static str,
        /// The encoder's words.
        detail: String,
    },
    /// It is here, and not in the job's log.
    #[error("not in the job's log: {0}")]
    Log(LogError),
    /// The committer thread is gone; whether the write is durable is not known.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    pub(super) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        let source = Arc::new(source);
        match source.kind() {
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

    pub(super) fn sled(doing: &'static str, path: &Path, error: sled::Error) -> Self {
        match error {
            sled::Error::Io(e) => Self::io(doing, path, e),
            // Such as another segment size: the database is well, it wants another build.
            sled::Error::Unsupported(words) => Self::io(
                doing,
                path,
                io::Error::new(io::ErrorKind::Unsupported, words),
            ),
            other => Self::Corrupt {
                path: path.to_owned(),
                detail: format!("{doing}: {other}"),
            },
        }
    }

    /// Whether the caller's request was refused while the database itself is well.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::TurnGap { .. }
                | Self::SpanGap { .. }
                | Self::TurnOpen { .. }
                | Self::AfterFinish { .. }
                | Self::TurnCount { .. }
                | Self::ConsumedTwice { .. }
                | Self::Encode { .. }
                | Self::Log(LogError::Taken { .. })
        )
    }
}
