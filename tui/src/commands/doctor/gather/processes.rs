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
    let leads = |pid: &u32| {
        let group = i32::try_from(*pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw);
        group.is_some_and(|p| rustix::process::getpgid(Some(p)).is_ok_and(|g| g == p))
    };
    pids.filter(leads)
        .filter_map(|pid| Some((pid, owner(pid)?)))
        .collect()
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
