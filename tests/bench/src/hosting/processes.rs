//! The processes of an engine, as `/proc` shows them.

use std::fs;

/// Python's helper, without which an engine goes on.
const TRACKER: &str = "resource_tracker";

/// A living process of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// The title that it shows.
    pub name: String,
    /// Whether it is the one that was started, and not started by another of the engine.
    pub leader: bool,
    /// Its own processor time, in clock ticks.
    pub ticks: u64,
    /// When it started, in clock ticks since boot.
    started: u64,
}

/// The fields of `/proc/PID/stat` that are used.
struct Stat {
    state: String,
    ticks: u64,
    started: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before them may have spaces and brackets.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |n: usize| fields.get(n)?.parse::<u64>().ok();
    Some(Stat {
        state: (*fields.first()?).to_owned(),
        ticks: number(11)? + number(12)?,
        started: number(19)?,
    })
}

/// A process's own processor time, in clock ticks; 0 when it is gone.
pub fn ticks(pid: u32) -> u64 {
    stat(pid).map_or(0, |stat| stat.ticks)
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter();
    let of_task = |task: fs::DirEntry| fs::read_to_string(task.path().join("children"));
    let texts = tasks.flatten().flatten().flat_map(of_task);
    let pids = texts.flat_map(|text| {
        let pids = text.split_whitespace().map(|pid| pid.parse().ok());
        pids.collect::<Vec<Option<u32>>>()
    });
    pids.flatten().collect()
}

fn title(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&line).replace('\0', " ");
    text.trim().to_owned()
}

/// All processes that the shim of this id started, and theirs, without helpers.
pub fn engine_of(shim: u32) -> Vec<Process> {
    let mut direct: Vec<(u64, u32)> = children(shim)
        .into_iter()
        .filter_map(|pid| Some((stat(pid)?.started, pid)))
        .collect();
    direct.sort_unstable();
    // Orphans are the shim's children, too, and younger than the leader.
    let leader = direct.first().map(|(_, pid)| *pid);
    let mut found: Vec<Process> = Vec::new();
    let mut open: Vec<u32> = direct.into_iter().map(|(_, pid)| pid).collect();
    while let Some(pid) = open.pop() {
        open.extend(children(pid));
        let Some(stat) = stat(pid).filter(|stat| stat.state != "Z") else {
            continue;
        };
        let name = title(pid);
        if !name.contains(TRACKER) && !found.iter().any(|known| known.pid == pid) {
            found.push(Process {
                pid,
                name,
                leader: leader == Some(pid),
                ticks: stat.ticks,
                started: stat.started,
            });
        }
    }
    found
}

/// The process that was started, or of the others the one that used most processor time.
pub fn choose(engine: &[Process], leader: bool) -> Option<&Process> {
    let meant = engine.iter().filter(|process| process.leader == leader);
    meant.max_by_key(|process| (process.ticks, process.started))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_leader_is_the_one_that_was_started_and_the_worker_the_one_that_computes() {
        let process = |pid, leader, ticks, started| Process {
            pid,
            name: String::new(),
            leader,
            ticks,
            started,
        };
        let engine = [
            process(7, true, 90, 1),
            process(8, false, 3, 2),
            process(9, false, 40, 3),
            process(10, false, 0, 4),
        ];
        assert_eq!(choose(&engine, true).unwrap().pid, 7);
        assert_eq!(choose(&engine, false).unwrap().pid, 9);
        assert_eq!(choose(&engine[..1], false), None);
    }

    #[test]
    fn a_process_has_its_children_until_they_are_gone() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let engine = engine_of(std::process::id());
        let found = engine.iter().any(|process| process.pid == child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found, "{engine:?}");
        assert_eq!(ticks(child.id()), 0, "it is gone");
    }
}
