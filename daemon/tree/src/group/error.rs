//! Why there is no control group.
use super::limits::Controller;
use std::io;
use std::path::PathBuf;

/// What makes groups possible, for whoever is told that there are none.
pub const HOW_TO_HAVE_GROUPS: &str = "start robustd as a service of systemd's with `Delegate=yes` and \
    `DelegateSubgroup=robustd`, or as root where /sys/fs/cgroup can be written to (in a container it is often \
    read-only)";

/// Why a robustd can make no groups, or none that limit what is to be limited.
#[derive(Debug, thiserror::Error)]
pub enum GroupsError {
    /// None at all.
    #[error("no control group can be made here ({why})")]
    NoneHere {
        /// Why, of each hierarchy that there is.
        why: String,
    },
    /// None that limits this.
    #[error("no control group here limits {controller} ({why})")]
    NoController {
        /// What.
        controller: Controller,
        /// Why.
        why: String,
    },
}

/// Why a life has no group.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// None can be made, and it was said why when this was tried.
    #[error("no control group can be made here")]
    NotPrepared,
    /// It cannot be made.
    #[error("cannot make the control group {path}: {source}")]
    Make {
        /// Where.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// An earlier one of its name is there and in use.
    #[error("the control group {path} is there already, and does not end")]
    InUse {
        /// Which.
        path: PathBuf,
    },
    /// A limit cannot be set.
    #[error("cannot write {value} to {path}: {source}")]
    Limit {
        /// What was to be written.
        value: String,
        /// Where.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// No process can be put into it.
    #[error("cannot open the control group {path}: {source}")]
    Open {
        /// Which.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}
