//! `/proc/PID/stat`.
use std::io;

/// The fields used of a process's or thread's `stat` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcStat {
    /// Its command name.
    pub name: String,
    /// `R`, `S`, `D`, `T` (stopped), `Z` (zombie), ...
    pub state: char,
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
    fn this_process_has_a_stat() {
        assert!(ProcStat::read(std::process::id()).unwrap().start_time > 0);
    }
}
