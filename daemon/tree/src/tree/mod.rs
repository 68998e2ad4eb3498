//! The processes of a tree, each held by its pidfd.
//!
//! ```text
//!              scan: children of members, orphans
//!                 │
//!                 ▼            pidfd fires
//!  unknown ──► member ─────────────────────────► dead ──counts?──► Died, once
//!                 │  name, times read anew          │
//!                 └──────── each scan               └─► reaped, if it is the caller's child
//! ```
//! One thread waits on all pidfds, so a death is told when the kernel knows of it. Scans only find
//! new members and refresh names; who lives and dies between two of them is never seen, and is no
//! engine by [`Policy`] either.
mod end;
mod exit;
mod member;
mod table;
mod watch;

pub use end::{EndPlan, Ended, Left};

use crate::child::Child;
use crate::policy::{How, Policy};
use crate::proc;
use rustix::process::Signal;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use watch::Shared;

/// The death of a process that counts as the engine's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Died {
    /// Its process id.
    pub pid: u32,
    /// Its title as last seen, as `VLLM::Worker`, else the name that the kernel had for it.
    pub name: String,
    /// How it ended.
    pub how: How,
    /// Whether it is the process that was started, and not a descendant.
    pub leader: bool,
    /// When the kernel's word of it reached the watching thread.
    pub at: Instant,
}

impl fmt::Display for Died {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {}) ended: {}", self.name, self.pid, self.how)
    }
}

/// A living process of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its process id.
    pub pid: u32,
    /// Clock ticks since boot; tells it from a later process of the same id.
    pub start_time: u64,
    /// Its title, else the name that the kernel has for it.
    pub name: String,
    /// Whether it is the process that was started.
    pub leader: bool,
}

/// Why a tree cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// Orphans could be of either tree.
    #[error("this process watches a tree already")]
    Second,
    /// The kernel was built without `CONFIG_PROC_CHILDREN`.
    #[error("cannot watch what process {pid} starts: this kernel does not tell the children")]
    NoChildren {
        /// The leader's process id.
        pid: u32,
    },
    /// The thread, or what it waits with, cannot be made.
    #[error("cannot watch process {pid}: {source}")]
    Watch {
        /// The leader's process id.
        pid: u32,
        /// The system's words.
        source: io::Error,
    },
}

/// One tree at a time: orphans come to this process without saying whose they were.
static WATCHING: AtomicBool = AtomicBool::new(false);

/// A child and all its descendants, watched. Dropping it kills them all and waits a second at most
/// for their ends; end the tree with [`Tree::end`] to know that nobody is left.
#[derive(Debug)]
pub struct Tree {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    leader: u32,
}

impl Tree {
    /// Watches a child that was just started, and everything it starts. The deaths that count by
    /// `policy` are handed to `on_died` on the watching thread, which it must not hold up.
    pub fn watch(
        child: Child,
        policy: Policy,
        on_died: impl FnMut(Died) + Send + 'static,
    ) -> Result<Self, TreeError> {
        let leader = child.pid();
        if !proc::tells_children() {
            return Err(TreeError::NoChildren { pid: leader });
        }
        if WATCHING.swap(true, Ordering::SeqCst) {
            return Err(TreeError::Second);
        }
        let started = Shared::new(child, policy).and_then(|shared| {
            let shared = Arc::new(shared);
            let watching = Arc::clone(&shared);
            let thread = std::thread::Builder::new()
                .name("tree".to_owned())
                .spawn(move || watching.run(on_died));
            // Else the child, which the table has by now, would live on unwatched.
            let thread = thread.inspect_err(|_| shared.table().signal_all(Signal::KILL))?;
            Ok((shared, thread))
        });
        let (shared, thread) = started.map_err(|source| {
            WATCHING.store(false, Ordering::SeqCst);
            TreeError::Watch {
                pid: leader,
                source,
            }
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
            leader,
        })
    }

    /// The process id of the child that was started.
    pub fn leader(&self) -> u32 {
        self.leader
    }

    /// Says that the engine serves: from now on the death of every process that is there counts.
    pub fn ready(&self) {
        self.shared.scanned().set_ready();
    }

    /// The living processes, found anew, in the order of their ids.
    pub fn members(&self) -> Vec<Member> {
        self.shared.scanned().members()
    }

    /// The processor time that the tree has used so far, with that of its dead. Never goes back.
    pub fn cpu_time(&self) -> Duration {
        self.shared.scanned().cpu_time()
    }

    /// The resident memory of all members. Pages that several of them share count for each.
    pub fn rss_bytes(&self) -> u64 {
        self.shared.scanned().rss_bytes()
    }

    /// Sends a signal to every member, found anew.
    pub fn signal(&self, signal: Signal) {
        self.shared.scanned().signal_all(signal);
    }

    /// Sends a signal to the process that was started, and to no other. Returns the process that got
    /// it; none when it is gone.
    pub fn signal_leader(&self, signal: Signal) -> Option<Member> {
        self.shared.scanned().signal_one(true, signal)
    }

    /// Sends a signal to the descendant that used most processor time, and to no other. Returns the
    /// process that got it; none when there is no descendant that works for the engine.
    pub fn signal_busiest(&self, signal: Signal) -> Option<Member> {
        self.shared.scanned().signal_one(false, signal)
    }

    /// Ends every member: the gentle signal, a grace, then SIGKILL until nobody is left, or until
    /// the plan's bound. Deaths are not reported any more. Blocks.
    pub fn end(&self, plan: &EndPlan) -> Ended {
        end::end(&self.shared, plan)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let at_once = EndPlan {
            grace: Duration::ZERO,
            bound: Duration::from_secs(1),
            ..EndPlan::default()
        };
        self.end(&at_once);
        self.shared.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        WATCHING.store(false, Ordering::SeqCst);
    }
}
