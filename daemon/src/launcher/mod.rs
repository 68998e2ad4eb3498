//! Starts role processes, sees their ends and strikes them. Mechanics only: it decides nothing.
//!
//! ```text
//! spawn ─┐                       ┌─► the group's leftovers are killed ─► the leader is reaped
//!        ├─► watched by its pidfd┤
//! adopt ─┘                       └─► one LaunchEvent::Exited, exactly once
//! ```
//! Where a spare waits for a life like it (`spares.rs`), `spawn` makes that the life, instead of starting a process.
//! A role is a session and process group of its own, so that the whole group can be killed, and so
//! that it outlives the daemon: in the daemon's session, the kernel would send SIGHUP to stopped
//! roles when the daemon dies. No parent-death signal, for the same reason. Where a control group can
//! be had it is in one of its own besides: a grandchild that makes a session of its own does not escape that.
//!
//! No end waits for a disk: the last lines of its log go with it if they can be read at once.
mod afflict;
mod debugger;
mod environment;
mod evidence;
#[cfg(test)]
mod evidence_tests;
mod find;
mod forked;
mod frames;
mod given_up;
mod groups;
#[cfg(test)]
mod groups_tests;
mod inside;
#[cfg(test)]
mod inside_tests;
mod kin;
mod oom;
mod page;
mod patience;
pub mod proc_stat;
mod slow;
mod spares;
mod spawn;
mod strangers;
mod tail;
#[cfg(test)]
mod tests;
mod watch;

pub use afflict::Afflictions;
pub use environment::{held_back, inherited};
pub use evidence::{Evidence, evidence};
pub use find::owned_by;
pub use inside::{Depth, Look, Looks};
pub use kin::{OWNER_VARIABLE, SERVICE_VARIABLE, is_of_a_role};
pub use page::{LogPage, PAGE_BYTES, page};
pub use proc_stat::descends_from;
pub use rustix::process::Signal;
pub use slow::{SlowArgs, slow_down};
pub use spares::{Parked, ParkedGroup, SpareSeen};
pub use strangers::{kill_and_wait, kill_spares_before};
pub use watch::Launcher;

use robust_shared::core::Exit;
use robust_shared::ids::Incarnation;
use robust_shared::job::Passed;
use robust_tree::{GroupError, GroupLimits};
use std::path::PathBuf;
use std::time::Instant;

/// What to start.
#[derive(Clone)]
pub struct SpawnSpec {
    /// Names the process in every later call and event.
    pub incarnation: Incarnation,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// What passes to it of the daemon's own environment, and nothing else does.
    pub passed: Passed,
    /// Set on top of that.
    pub env: Vec<(String, String)>,
    /// Output and errors are appended here.
    pub log_path: PathBuf,
    /// A line written to the log before the process starts.
    pub header: String,
    /// Its control group; none where it is to have none.
    pub group: Option<LifeGroup>,
    /// The spare that can become it; none where there is none of its kind.
    pub parked: Option<Box<Parked>>,
}

/// The control group of a life.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LifeGroup {
    /// Names the life among all of its daemon.
    pub name: String,
    /// What is limited by it.
    pub limits: GroupLimits,
    /// The table of the job file that says so.
    pub table: String,
    /// Without it the process is not started.
    pub needed: bool,
}

impl std::fmt::Debug for SpawnSpec {
    /// Of the environment the names only: a value may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("SpawnSpec")
            .field("incarnation", &self.incarnation)
            .field("argv", &self.argv)
            .field("env", &names)
            .field("log_path", &self.log_path)
            .finish_non_exhaustive()
    }
}

/// A process that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its process id, which is its group's id too.
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`; tells it from a later process of the same id.
    pub start_time: u64,
}

/// What happened to a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaunchEvent {
    /// It ended. Sent exactly once for each process.
    Exited {
        /// Which.
        incarnation: Incarnation,
        /// When the kernel's word of it reached the watching thread.
        at: Instant,
        /// How.
        exit: Exit,
        /// The last lines it wrote, or empty.
        tail_of_log: String,
    },
}

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The argv is empty.
    #[error("nothing to start for {0}: its command line is empty")]
    NoProgram(Incarnation),
    /// Incarnations are never reused.
    #[error("{0} is running already")]
    Running(Incarnation),
    /// The log cannot be written.
    #[error("cannot open the log {path}: {source}")]
    Log {
        /// Its path.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// The program does not start.
    #[error("cannot start {program}: {source}")]
    Exec {
        /// The program.
        program: String,
        /// The system's words.
        source: std::io::Error,
    },
    /// It is to be in a control group, and none can be made.
    #[error("{incarnation} is not started: {source}")]
    Group {
        /// Which life.
        incarnation: Incarnation,
        /// Why.
        source: GroupError,
    },
    /// It is to be in a control group, and does not get in.
    #[error("cannot start {program} in its control group: {source}")]
    Join {
        /// The program.
        program: String,
        /// The system's words.
        source: std::io::Error,
    },
    /// It started, cannot be watched, and was killed again.
    #[error("cannot watch process {pid}: {source}")]
    Watch {
        /// Its process id.
        pid: u32,
        /// The system's words.
        source: std::io::Error,
    },
}
