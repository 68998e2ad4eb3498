//! What a hung process is doing.
use super::patience::Patience;
use super::proc_stat::{ProcStat, SHIM, hosted_by};
use super::{debugger, frames};
use robust_shared::core::{ProcessState, Seen};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Of the whole text: it is stored with the incident and shown to people.
const TEXT_LIMIT: usize = 32 * 1024;
/// Of a program that hosts others, so many are looked at.
const MOST_PROCESSES: usize = 8;
/// Lines of its log, and bytes in which they are looked for.
const LOG_LINES: usize = 20;
const LOG_END: u64 = 8 << 10;
/// Of the time that there is, such a part is for the log: its disk may stand still.
const LOG_SHARE: u32 = 4;
const STATUS_LINES: [&str; 5] = [
    "VmRSS:",
    "SigPnd:",
    "SigBlk:",
    "voluntary_ctxt_switches:",
    "nonvoluntary_ctxt_switches:",
];

/// What was found of a process that hangs, or that others may wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// For people.
    pub text: String,
    /// What can be compared with what was found of its peers.
    pub seen: Seen,
}

/// One process of it.
#[derive(Default)]
pub(super) struct Looked {
    pub text: String,
    seen: Seen,
    ticks: u64,
}

/// States, wait channels and stacks of all threads, from `/proc` and, where installed, py-spy or
/// gdb, and the end of its log. Of a shim it is the program's that it hosts. Blocks for up to `limit`;
/// call it where blocking is allowed. `gently`: without what stops the process for a while.
pub fn evidence(pid: u32, limit: Duration, gently: bool) -> Evidence {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own = ProcStat::read(pid).ok();
    let shim = own.as_ref().is_some_and(|stat| stat.name == SHIM);
    let mut all = if shim { hosted_by(pid) } else { Vec::new() };
    if all.is_empty() {
        all.push(pid);
    }
    all.truncate(MOST_PROCESSES);
    let each = limit / all.len() as u32;
    let log = Patience::default().read(limit / LOG_SHARE, move || log_end(pid));
    let mut text = log.unwrap_or_default();
    let looked = all.iter().map(|of| evidence_with(*of, each, &path, gently));
    let looked: Vec<Looked> = looked.collect();
    looked.iter().for_each(|of| text.push_str(&of.text));
    truncate(&mut text, TEXT_LIMIT);
    let shim = own.map(|stat| ProcessState::from_letter(stat.state));
    let seen = as_one(looked, shim);
    Evidence { text, seen }
}

/// What is said of several processes of one role: where the busiest is. One that is stopped, the shim
/// before them among these, stops them all.
fn as_one(all: Vec<Looked>, shim: Option<ProcessState>) -> Seen {
    let states = all.iter().map(|of| of.seen.state).chain(shim);
    let stopped = states.clone().any(|state| state == ProcessState::Stopped);
    let busiest = all.into_iter().max_by_key(|of| of.ticks);
    let mut seen = busiest.map(|of| of.seen).unwrap_or_default();
    if stopped {
        seen.state = ProcessState::Stopped;
    }
    seen
}

/// The last lines that a process wrote to its log.
fn log_end(pid: u32) -> String {
    let end = || -> std::io::Result<String> {
        let mut log = std::fs::File::open(format!("/proc/{pid}/fd/2"))?;
        if !log.metadata()?.is_file() {
            return Ok(String::new());
        }
        let length = log.metadata()?.len();
        log.seek(SeekFrom::Start(length.saturating_sub(LOG_END)))?;
        let mut bytes = Vec::new();
        log.take(LOG_END).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let last = &lines[lines.len().saturating_sub(LOG_LINES)..];
        Ok(last.iter().map(|line| format!("log: {line}\n")).collect())
    };
    end().unwrap_or_default()
}

/// The same, with tools from this search path.
pub(super) fn evidence_with(pid: u32, limit: Duration, path: &OsStr, gently: bool) -> Looked {
    let stat = match ProcStat::read(pid) {
        Ok(stat) => stat,
        Err(e) => {
            let state = match e.kind() {
                std::io::ErrorKind::NotFound => ProcessState::Dead,
                _ => ProcessState::default(),
            };
            let text = format!("process {pid} cannot be read: {e}\n");
            let frames = Vec::new();
            let seen = Seen { state, frames };
            return Looked {
                text,
                seen,
                ticks: 0,
            };
        }
    };
    let mut text = format!("process {pid} ({}) is in state {}\n", stat.name, stat.state);
    let mut threads: Vec<PathBuf> = std::fs::read_dir(format!("/proc/{pid}/task"))
        .map(|entries| entries.flatten().map(|e| e.path()).collect())
        .unwrap_or_default();
    threads.sort();
    let ticks: Vec<(u32, u64)> = threads.iter().filter_map(|t| ticks_of(t)).collect();
    for thread in &threads {
        describe_thread(thread, &mut text);
    }
    let stacks = debugger::stacks(pid, limit, path, gently);
    text.push_str(&stacks);
    truncate(&mut text, TEXT_LIMIT);
    let seen = Seen {
        state: ProcessState::from_letter(stat.state),
        frames: frames::of_busiest(&stacks, &ticks),
    };
    let ticks = stat.user_ticks + stat.system_ticks;
    Looked { text, seen, ticks }
}

/// A thread's number, and the processor time that it used.
fn ticks_of(task: &Path) -> Option<(u32, u64)> {
    let number = task.file_name()?.to_str()?.parse().ok()?;
    let stat = ProcStat::read_from(task.join("stat").to_str()?).ok()?;
    Some((number, stat.user_ticks + stat.system_ticks))
}

fn describe_thread(task: &Path, text: &mut String) {
    let read = |file: &str| std::fs::read_to_string(task.join(file));
    let name = task.file_name().unwrap_or_default().to_string_lossy();
    if let Ok(stat) = ProcStat::read_from(&task.join("stat").to_string_lossy()) {
        let wchan = read("wchan").unwrap_or_else(|e| e.to_string());
        let _ = write!(
            text,
            "thread {name} ({}) state {} wchan {wchan}",
            stat.name, stat.state
        );
        let _ = writeln!(text, " ticks {}+{}", stat.user_ticks, stat.system_ticks);
    }
    if let Ok(status) = read("status") {
        for line in status
            .lines()
            .filter(|l| STATUS_LINES.iter().any(|s| l.starts_with(s)))
        {
            let _ = writeln!(text, "  {line}");
        }
    }
    match read("stack") {
        Ok(stack) => stack.lines().for_each(|line| {
            let _ = writeln!(text, "  {line}");
        }),
        Err(e) => {
            let _ = writeln!(text, "  kernel stack: {e}");
        }
    }
}

fn truncate(text: &mut String, limit: usize) {
    if text.len() > limit {
        let end = (0..=limit)
            .rev()
            .find(|i| text.is_char_boundary(*i))
            .unwrap_or(0);
        text.truncate(end);
        text.push_str("\n(cut)\n");
    }
}
