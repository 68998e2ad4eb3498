//! Processes of the engines that instances have.
use crate::{Daemon, roles};
use nix::unistd::{Pid, getpgid};

/// A living process of an instance's group whose title has this in it.
pub fn engine_process(daemon: &Daemon, role: &str, index: usize, title: &str) -> Option<i32> {
    let status = daemon.json(&["status"]);
    let group = roles(&status, role).get(index)?["pid"].as_i64()?;
    let members = std::fs::read_dir("/proc").unwrap().flatten();
    members
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let of = getpgid(Some(Pid::from_raw(pid))).ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let named = String::from_utf8_lossy(&line).contains(title);
            (i64::from(of.as_raw()) == group && named).then_some(pid)
        })
        .min()
}
