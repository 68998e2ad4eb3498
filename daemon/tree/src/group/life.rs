//! The group of one life.
//!
//! ```text
//!  Groups::make ──► Group ── door ──► a process goes in before it runs its program
//!                     └────── kill ──► remove: false while somebody still dies in it ──► again ──► true
//! ```
use super::clear;
use super::error::GroupError;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, open};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A life's groups, one for each hierarchy that it is in. Dropping this leaves them: whoever is in them may outlive
/// the daemon.
#[derive(Debug)]
pub struct Group {
    pub(super) name: String,
    pub(super) unified: Option<PathBuf>,
    pub(super) version_1: Vec<PathBuf>,
    /// That of the latter which can be frozen.
    pub(super) freezer: Option<PathBuf>,
    pub(super) memory: Option<MemoryLimit>,
}

/// A limit of memory, and where the kernel counts what it killed because of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The limit.
    pub bytes: u64,
    /// The file with a line `oom_kill N`.
    pub kills: PathBuf,
    pub(super) reached: Reached,
}

/// Where it stands whether a limit was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// Version 2: the line `oom N` of `memory.events`.
    Events(PathBuf),
    /// Version 1: the most that was used. `memory.failcnt` does not count every time.
    MostUsed(PathBuf),
}

/// The kernel charges memory in batches, for each processor.
const ALMOST: u64 = 1 << 20;

impl MemoryLimit {
    /// Whether the limit was ever reached: else it was the machine that had no memory left.
    pub fn was_reached(&self) -> bool {
        let read = |path: &PathBuf| fs::read_to_string(path).unwrap_or_default();
        let is_some = |count: &str| count.trim().parse().is_ok_and(|count: u64| count > 0);
        match &self.reached {
            Reached::Events(path) => {
                let text = read(path);
                let mut counts = text.lines().filter_map(|line| line.strip_prefix("oom "));
                counts.any(is_some)
            }
            Reached::MostUsed(path) => {
                let most: u64 = read(path).trim().parse().unwrap_or(0);
                most.saturating_add(ALMOST) >= self.bytes
            }
        }
    }
}

impl Group {
    /// Names the life.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its limit of memory, if it has one.
    pub fn memory(&self) -> Option<&MemoryLimit> {
        self.memory.as_ref()
    }

    /// The processes that are in it.
    pub fn members(&self) -> BTreeSet<u32> {
        let groups = self.folders().flat_map(|f| clear::with_those_below(f));
        groups.flat_map(|group| clear::members(&group)).collect()
    }

    /// Opens what a process goes in by.
    pub fn door(&self) -> Result<Door, GroupError> {
        let opened = |path: &Path, flags| {
            open(path, flags | OFlags::CLOEXEC, Mode::empty()).map_err(|source| GroupError::Open {
                path: path.to_owned(),
                source: source.into(),
            })
        };
        let procs = |folder: &PathBuf| opened(&folder.join("cgroup.procs"), OFlags::WRONLY);
        let tasks = |folder: &PathBuf| opened(&folder.join("tasks"), OFlags::WRONLY);
        let folder = |folder: &PathBuf| opened(folder, OFlags::RDONLY | OFlags::DIRECTORY);
        Ok(Door {
            folder: self.unified.as_ref().map(folder).transpose()?,
            procs: self.unified.as_ref().map(procs).transpose()?,
            tasks: self.version_1.iter().map(tasks).collect::<Result<_, _>>()?,
        })
    }

    /// Kills everything in it, without waiting for the ends.
    pub fn kill(&self) {
        match (&self.unified, &self.freezer) {
            (Some(unified), _) => clear::kill_unified(unified),
            (None, Some(freezer)) => clear::kill_version_1(freezer, true),
            (None, None) => {
                let each = self.version_1.iter();
                each.for_each(|folder| clear::kill_version_1(folder, false));
            }
        }
    }

    /// Removes it; false while a process is in it, also one that is dying.
    pub fn remove(&self) -> io::Result<bool> {
        let mut gone = true;
        for folder in self.folders() {
            gone &= clear::remove(folder)?;
        }
        Ok(gone)
    }

    fn folders(&self) -> impl Iterator<Item = &PathBuf> {
        self.unified.iter().chain(&self.version_1)
    }
}

/// What a process goes into a group by. Nothing here allocates or locks but for the opening, so that a forked
/// child may use it.
#[derive(Debug)]
pub struct Door {
    folder: Option<OwnedFd>,
    procs: Option<OwnedFd>,
    tasks: Vec<OwnedFd>,
}

impl Door {
    /// The folder of version 2, for `CLONE_INTO_CGROUP`; none where only version 1 has a group.
    pub fn unified(&self) -> Option<BorrowedFd<'_>> {
        self.folder.as_ref().map(AsFd::as_fd)
    }

    /// Puts this process into the group of version 2. That stands still for as long as the kernel takes to see
    /// that no process forks (15 ms), so a process is better made in it.
    pub fn enter_unified(&self) -> io::Result<()> {
        self.procs.as_ref().map_or(Ok(()), go_in)
    }

    /// Puts this process, which has one thread, into the groups of version 1: a thread moves itself at once,
    /// where a process would wait as in version 2.
    pub fn enter_version_1(&self) -> io::Result<()> {
        self.tasks.iter().try_for_each(go_in)
    }
}

/// The kernel takes 0 for who writes.
fn go_in(file: &OwnedFd) -> io::Result<()> {
    rustix::io::write(file, b"0")?;
    Ok(())
}
