//! `/proc/PID/stat`.
use nix::unistd::{Pid, getsid};
use std::io;

/// Processes between a role and one that it started.
const MAX_ANCESTORS: usize = 64;

/// The fields used of a process's or thread's `stat` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcStat {
    /// Its command name.
    pub name: String,
    /// `R`, `S`, `D`, `T` (stopped), `Z` (zombie), ...
    pub state: char,
    /// Who started it, or took it over.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// User time, in clock ticks.
    pub user_ticks: u64,
    /// System time, in clock ticks.
    pub system_ticks: u64,
    /// When it started, in clock ticks since boot.
    pub start_time: u64,
    /// Resident pages.
    pub rss_pages: u64,
}

impl ProcStat {
    /// Of a process.
    pub fn read(pid: u32) -> io::Result<Self> {
        Self::read_from(&format!("/proc/{pid}/stat"))
    }

    /// Of a `stat` file.
    pub fn read_from(path: &str) -> io::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        Self::parse(&text)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("{path}: {text}")))
    }

    /// The name may contain blanks and parentheses; the last `)` ends it.
    fn parse(text: &str) -> Option<Self> {
        let (head, tail) = text.rsplit_once(')')?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        // proc_pid_stat(5) counts from 1; the third field is the first one here.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            name: head.split_once('(')?.1.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: u32::try_from(number(4)?).ok()?,
            group: u32::try_from(number(5)?).ok()?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            start_time: number(22)?,
            rss_pages: number(24)?,
        })
    }

    /// Whether it ended and waits to be reaped.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Whether a process is another one, or was started by it, directly or not. One that left its parents behind is
/// known by its session: every role begins one.
pub fn descends_from(pid: u32, ancestor: u32) -> bool {
    if pid == ancestor {
        return true;
    }
    // Everything descends from the first process: that says nothing.
    if ancestor <= 1 {
        return false;
    }
    // Of a session that another namespace began the number is 0.
    let session = i32::try_from(pid).map(|pid| getsid(Some(Pid::from_raw(pid))));
    let session = session.ok().and_then(Result::ok).map(Pid::as_raw);
    if session.is_some_and(|session| u32::try_from(session) == Ok(ancestor)) {
        return true;
    }
    let mut next = pid;
    // Each is older than the one before, but ids come again.
    for _ in 0..MAX_ANCESTORS {
        match ProcStat::read(next) {
            Ok(stat) if stat.parent == ancestor => return true,
            Ok(stat) if stat.parent > 1 => next = stat.parent,
            _ => return false,
        }
    }
    false
}

/// The program that hosts those of users, as `/proc/PID/stat` names it.
pub const SHIM: &str = "robust-shim";

/// All that a process started and that still lives, parents before their children.
pub fn hosted_by(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let threads = tasks.into_iter().flatten().flatten();
    let children = threads.flat_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let pids = text.split_whitespace().filter_map(|pid| pid.parse().ok());
        pids.collect::<Vec<u32>>()
    });
    children
        .flat_map(|pid| std::iter::once(pid).chain(hosted_by(pid)))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_is_read() {
        let text = "7 (a) b (c) S 1 5 7 0 -1 4194560 1 0 0 0 11 12 0 0 20 0 1 0 4242 1 99 0";
        let stat = ProcStat::parse(text).unwrap();
        assert_eq!(
            (stat.name.as_str(), stat.state, stat.group),
            ("a) b (c", 'S', 5)
        );
        assert_eq!((stat.user_ticks, stat.system_ticks), (11, 12));
        assert_eq!((stat.start_time, stat.rss_pages), (4242, 99));
    }

    #[test]
    fn who_a_process_descends_from_is_seen_by_its_parents_or_its_session() {
        let me = std::process::id();
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        let grandchild: u32 = line.trim().parse().unwrap();
        assert!(descends_from(me, me) && descends_from(grandchild, me));
        assert!(descends_from(grandchild, child.id()));
        assert!(!descends_from(child.id(), grandchild) && !descends_from(me, child.id()));
        let session = getsid(None).unwrap().as_raw().unsigned_abs();
        let is_of_session = || descends_from(grandchild, session) || session <= 1;
        assert!(is_of_session());
        child.kill().unwrap();
        // Its parent is gone, its session is not.
        child.wait().unwrap();
        assert!(is_of_session());
        assert!(!descends_from(grandchild, 1), "everything does");
        let left = Pid::from_raw(grandchild.cast_signed());
        nix::sys::signal::kill(left, nix::sys::signal::Signal::SIGKILL).unwrap();
    }

    #[test]
    fn this_process_has_a_stat() {
        assert!(ProcStat::read(std::process::id()).unwrap().start_time > 0);
    }
}
