//! Processes that hold devices, and role processes with or without a daemon.
use super::super::facts::Process;
use super::devices::Holder;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Names, in a role's environment, the state directory it belongs to.
const OWNER: &[u8] = b"ROBUST_ROLE_OF=";

/// Those that hold devices and all role processes of this user.
pub(super) fn of(holders: &[Holder]) -> Vec<Process> {
    let mut supervised = BTreeMap::new();
    let mut known = |dir: &Path| {
        let there = || UnixStream::connect(dir.join("control.sock")).is_ok();
        *supervised.entry(dir.to_owned()).or_insert_with(there)
    };
    let mut roles = roles();
    let mut found = Vec::new();
    for holder in holders {
        let role_of = roles.remove(&holder.pid).or_else(|| owner(holder.pid));
        found.push(Process {
            pid: holder.pid,
            name: name(holder.pid),
            device: Some(holder.device),
            bytes: holder.bytes,
            supervised: role_of.as_deref().is_some_and(&mut known),
            role_of,
        });
    }
    found.extend(roles.into_iter().map(|(pid, dir)| Process {
        pid,
        name: name(pid),
        supervised: known(&dir),
        role_of: Some(dir),
        ..Process::default()
    }));
    found
}

/// Leaders of role processes: what these start themselves ends with them.
fn roles() -> BTreeMap<u32, PathBuf> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| group(*pid) == Some(*pid))
        .filter_map(|pid| Some((pid, owner(pid)?)))
        .collect()
}

/// A process's group, from `PID (NAME) STATE PPID GROUP ...`.
fn group(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(2)?.parse().ok()
}

fn owner(pid: u32) -> Option<PathBuf> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut entries = environment.split(|byte| *byte == 0);
    let dir = entries.find_map(|entry| entry.strip_prefix(OWNER))?;
    Some(PathBuf::from(OsString::from_vec(dir.to_owned())))
}

fn name(pid: u32) -> String {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
    // Of another container, as a rule.
    name.map_or_else(|_| "process".to_owned(), |n| n.trim().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    #[test]
    fn a_role_is_left_over_while_no_daemon_serves_its_state_directory() {
        let dir = tempfile::tempdir().unwrap();
        let mut role = Command::new("sleep")
            .arg("60")
            .env("ROBUST_ROLE_OF", dir.path())
            .process_group(0)
            .spawn()
            .unwrap();
        let pid = role.id();
        let look = || of(&[]).into_iter().find(|p| p.pid == pid);
        // Its environment is there only once it runs its program.
        let found = std::iter::repeat_with(look).take(10_000).flatten().next();
        let found = found.unwrap();
        assert_eq!((found.name.as_str(), found.supervised), ("sleep", false));
        assert_eq!(found.role_of.as_deref(), Some(dir.path()));
        let _daemon = UnixListener::bind(dir.path().join("control.sock")).unwrap();
        assert!(look().unwrap().supervised);
        role.kill().unwrap();
        role.wait().unwrap();
        assert_eq!(look(), None);
    }
}
