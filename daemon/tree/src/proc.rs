//! What `/proc` says of a process.
use crate::title;
use std::fs;
use std::io;

/// The fields used of a process's `stat` file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// `R`, `S`, `D`, `T` (stopped), `Z` (its first thread ended), ...
    pub state: char,
    pub parent: u32,
    /// Its own user and system time, in clock ticks.
    pub own_ticks: u64,
    /// That of the children it waited for, in clock ticks.
    pub children_ticks: u64,
    /// When it started, in clock ticks since boot: with the id, this names a process for ever.
    pub start_time: u64,
    pub rss_pages: u64,
    /// Of a zombie: how it ended, as `wait` would tell it. Zero where it may not be read.
    pub wait_status: i32,
}

impl Stat {
    pub fn read(pid: u32) -> io::Result<Self> {
        let text = fs::read(format!("/proc/{pid}/stat"))?;
        Self::parse(&String::from_utf8_lossy(&text))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an unknown form of stat"))
    }

    /// The name may contain blanks and parentheses; the last `)` ends it.
    fn parse(text: &str) -> Option<Self> {
        let (_, tail) = text.rsplit_once(')')?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        // proc_pid_stat(5) counts from 1; the third field is the first one here.
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: u32::try_from(number(4)?).ok()?,
            own_ticks: number(14)? + number(15)?,
            children_ticks: number(16)? + number(17)?,
            start_time: number(22)?,
            rss_pages: number(24)?,
            wait_status: fields.get(52 - 3)?.parse().ok()?,
        })
    }

    /// Whether it ended (its first thread at least) and waits to be reaped.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// What a process calls itself, and the command line that it shows. A process that ended or is
/// just being executed shows none.
pub(crate) fn name_and_command(pid: u32) -> io::Result<(String, String)> {
    let comm = fs::read(format!("/proc/{pid}/comm"))?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let comm = String::from_utf8_lossy(&comm);
    let name = title::name(comm.trim_end_matches('\n'), &command);
    let words = command.split(|byte| *byte == 0).filter(|w| !w.is_empty());
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    Ok((name, words.join(" ")))
}

/// Whether the kernel tells the children of a process.
pub(crate) fn tells_children() -> bool {
    let own = std::process::id();
    fs::exists(format!("/proc/{own}/task/{own}/children")).is_ok_and(|exists| exists)
}

/// The children of all threads of a process, living and not yet reaped.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    threads
        .flat_map(|thread| parse_children(fs::read_to_string(thread.path().join("children"))))
        .collect()
}

/// The children of a process's first thread: orphans are handed to that one, while those that
/// other threads started are theirs.
pub(crate) fn children_of_first_thread(pid: u32) -> Vec<u32> {
    parse_children(fs::read_to_string(format!(
        "/proc/{pid}/task/{pid}/children"
    )))
}

fn parse_children(text: io::Result<String>) -> Vec<u32> {
    let text = text.unwrap_or_default();
    let ids = text.split_ascii_whitespace();
    ids.filter_map(|id| id.parse().ok()).collect()
}

/// The ids of all processes.
pub(crate) fn all() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_stat_with_a_strange_name_is_read() {
        let rest = "Z 4 5 7 0 -1 0 0 0 0 0 11 12 3 4 20 0 1 0 4242 1 99 0";
        let text = format!("7 (a) b (c) {rest} {} 9\n", ["0"; 26].join(" "));
        let stat = Stat::parse(&text).unwrap();
        assert!(stat.is_zombie());
        assert_eq!(
            (stat.parent, stat.start_time, stat.rss_pages),
            (4, 4242, 99)
        );
        assert_eq!((stat.own_ticks, stat.children_ticks), (23, 7));
        assert_eq!(stat.wait_status, 9);
    }

    #[test]
    fn this_process_is_read() {
        let pid = std::process::id();
        assert!(Stat::read(pid).unwrap().start_time > 0);
        assert!(!name_and_command(pid).unwrap().1.is_empty());
        assert!(all().any(|other| other == pid));
    }
}
