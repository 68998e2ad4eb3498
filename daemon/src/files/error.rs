//! Why the files of a job are not there.
use super::size;
use crate::state::StateDirError;
use blake3::Hash;
use robust_grouplog::FileError;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Another file stands where the job file names one of the job's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differs {
    /// The key that names it.
    pub key: &'static str,
    /// Where it is.
    pub path: PathBuf,
    /// What it is.
    pub has: Hash,
    /// What it is to be.
    pub wanted: Hash,
}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            key,
            path,
            has,
            wanted,
        } = self;
        write!(
            f,
            "{} ({key}) is not the file that the job began with: its BLAKE3 is {has}, and that was {wanted}; put back what \
             was there, or move it away and the job's own copy is taken; a job of other files is begun anew, under another \
             name or with --fresh",
            path.display()
        )
    }
}

/// A file that is not on this machine, and did not come.
#[derive(Debug)]
pub struct Lacks {
    /// Its name.
    pub name: String,
    /// The key that names it.
    pub key: &'static str,
    /// Where the job file has it, where it names one.
    pub named: Option<PathBuf>,
    /// Why it did not come.
    pub source: FileError,
}

impl fmt::Display for Lacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            key,
            named,
            source,
        } = self;
        write!(f, "{name} ({key}) of the job is not on this machine")?;
        if let Some(path) = named {
            write!(f, " at {}, where the job file has it", path.display())?;
        }
        write!(
            f,
            ", and cannot be fetched: {source}; put it there, or start the controller that has it, which puts it into the \
             object store"
        )
    }
}

/// Why a job cannot go on here.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// A file was changed after the job began.
    #[error("{0}")]
    Differs(Box<Differs>),
    /// A file is nowhere.
    #[error("{0}")]
    Lacks(Box<Lacks>),
    /// The disk has no room for a copy.
    #[error(
        "{}: a file of the job has {}, and of the {} that are free there 1 GiB is kept for the controller itself: make room, \
         or let the file be at the path of the job file", path.display(), size(*bytes), size(*free)
    )]
    NoRoom {
        /// Where the copy would be.
        path: PathBuf,
        /// What it takes.
        bytes: u64,
        /// What is free there.
        free: u64,
    },
    /// The record of the job's files cannot be used.
    #[error("{path}: the record of the job's files cannot be read: {why}")]
    Record {
        /// Where it is.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A file cannot be read.
    #[error("{path}: {source}")]
    Local {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateDirError),
}
