//! Killing what is in a group, and removing it.
//!
//! ```text
//!  version 2                      cgroup.kill, once: the kernel leaves nobody out
//!  version 1 with a freezer       frozen ─► SIGKILL to all ─► thawed, when they die
//!  else                           SIGKILL to all that are seen; again, until nobody is
//! ```
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Groups within groups that are looked at; whoever makes more has to remove them himself.
const DEEPEST: usize = 16;

/// Kills all that is in a group of version 2 and below it.
pub(super) fn kill_unified(folder: &Path) {
    // Before Linux 5.14 there is no such file.
    if fs::write(folder.join("cgroup.kill"), "1").is_err() {
        kill_seen(folder);
    }
}

/// Kills all that is in a group of version 1 and below it; no process is made in a frozen one meanwhile.
pub(super) fn kill_version_1(folder: &Path, freezes: bool) {
    let state = |word: &str| fs::write(folder.join("freezer.state"), word).is_ok();
    let frozen = freezes && state("FROZEN");
    kill_seen(folder);
    if frozen {
        state("THAWED");
    }
}

fn kill_seen(folder: &Path) {
    for group in with_those_below(folder) {
        let held = members(&group).into_iter().filter_map(hold);
        let held: Vec<_> = held.collect();
        // An id that was another process's by the time it was held is not in the group any more.
        let there = members(&group);
        for (pid, pidfd) in held {
            if there.contains(&pid) {
                let _ = pidfd_send_signal(&pidfd, Signal::KILL);
            }
        }
    }
}

fn hold(pid: u32) -> Option<(u32, rustix::fd::OwnedFd)> {
    let id = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
    Some((pid, pidfd_open(id, PidfdFlags::empty()).ok()?))
}

/// The processes of a group.
pub(super) fn members(group: &Path) -> BTreeSet<u32> {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// A group and those within it, the innermost last.
pub(super) fn with_those_below(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    let mut at = 0;
    let depth = |path: &Path| path.components().count();
    let deepest = depth(folder) + DEEPEST;
    while let Some(group) = all.get(at).cloned() {
        at += 1;
        if depth(&group) < deepest {
            all.extend(folders(&group));
        }
    }
    all
}

/// The groups directly within a group.
pub(super) fn folders(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let folders = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    folders.map(|e| e.path()).collect()
}

/// Removes a group and those within it; false while a process is in one of them.
pub(super) fn remove(folder: &Path) -> io::Result<bool> {
    match fs::remove_dir(folder) {
        Ok(()) => return Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        // Somebody is in it, or another group is.
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
        Err(error) => return Err(error),
    }
    let within: Vec<PathBuf> = with_those_below(folder).split_off(1);
    for group in within.iter().rev() {
        match fs::remove_dir(group) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => return Ok(false),
            _ => {}
        }
    }
    match fs::remove_dir(folder) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Ok(false),
        Err(error) => Err(error),
    }
}
