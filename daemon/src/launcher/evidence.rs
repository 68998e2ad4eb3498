//! What a hung process is doing.
use super::debugger;
use super::patience::Patience;
use super::proc_stat::{ProcStat, SHIM, hosted_by};
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

/// States, wait channels and stacks of all threads, from `/proc` and, where installed, py-spy or
/// gdb, and the end of its log. Of a shim it is the program's that it hosts. Blocks for up to `limit`;
/// call it where blocking is allowed.
pub fn evidence(pid: u32, limit: Duration) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let shim = ProcStat::read(pid).is_ok_and(|stat| stat.name == SHIM);
    let mut all = if shim { hosted_by(pid) } else { Vec::new() };
    if all.is_empty() {
        all.push(pid);
    }
    all.truncate(MOST_PROCESSES);
    let each = limit / all.len() as u32;
    let log = Patience::default().read(limit / LOG_SHARE, move || log_end(pid));
    let mut text = log.unwrap_or_default();
    all.iter()
        .for_each(|of| text.push_str(&evidence_with(*of, each, &path)));
    truncate(&mut text, TEXT_LIMIT);
    text
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
pub(super) fn evidence_with(pid: u32, limit: Duration, path: &OsStr) -> String {
    let mut text = match ProcStat::read(pid) {
        Ok(stat) => format!("process {pid} ({}) is in state {}\n", stat.name, stat.state),
        Err(e) => return format!("process {pid} cannot be read: {e}\n"),
    };
    let mut threads: Vec<PathBuf> = std::fs::read_dir(format!("/proc/{pid}/task"))
        .map(|entries| entries.flatten().map(|e| e.path()).collect())
        .unwrap_or_default();
    threads.sort();
    for thread in &threads {
        describe_thread(thread, &mut text);
    }
    text.push_str(&debugger::stacks(pid, limit, path));
    truncate(&mut text, TEXT_LIMIT);
    text
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
