//! What a process does now: states, processor time, wait channels and stacks of its threads.
//!
//! ```text
//!  clocks of all threads ── a second ──► clocks again ──► the busiest in full ──► stacks, where a tool has them
//! ```
//! All but [`Depth::Native`] is read from `/proc`, or by py-spy in its way that stops nothing: the process goes on
//! meanwhile. A debugger stops it, for no longer than it may, and a process that it left stopped is woken.
use super::debugger::{self, End};
use super::proc_stat::{ProcStat, SHIM, hosted_by};
use super::{Running, frames};
use robust_proto::v1::{InspectedProcess, InspectedThread};
use robust_shared::wire::{InspectWay, Word as _};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};

/// Between the two readings of the clocks.
const BETWEEN: Duration = Duration::from_secs(1);
/// Of a program that hosts others, so many processes are looked at, the program among them.
const MOST_PROCESSES: usize = 8;
/// Threads whose clocks are read, and those of them that are told of.
const MOST_THREADS: usize = 2048;
const SHOWN_THREADS: usize = 64;
/// Of the kernel's stack.
const KERNEL_FRAMES: usize = 16;
/// What a tool that stops nothing may take for a process.
const TOOL_WITHIN: Duration = Duration::from_secs(3);
/// Looks that may be under way at once on a machine.
const AT_ONCE: usize = 32;
/// What a look may be late before nobody waits for it any more.
const GRACE: Duration = Duration::from_secs(2);

/// How deep it is looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Threads: states, wait channels, processor time, and the kernel's stacks where they may be read.
    Threads,
    /// Stacks too, as far as they can be had while the process goes on: Python's, by py-spy.
    Stacks,
    /// Stacks by a debugger, which stops the process for a moment.
    Native,
}

impl Depth {
    /// As requests have it.
    pub fn word(self) -> &'static str {
        let way = match self {
            Self::Threads => InspectWay::Threads,
            Self::Stacks => InspectWay::Stacks,
            Self::Native => InspectWay::Native,
        };
        way.word()
    }

    /// The depth of this word.
    pub fn of_word(word: &str) -> Option<Self> {
        match InspectWay::known(word)? {
            InspectWay::Threads => Some(Self::Threads),
            InspectWay::Stacks => Some(Self::Stacks),
            InspectWay::Native => Some(Self::Native),
            InspectWay::Probe => None,
        }
    }

    /// What a look may take, all processes of an instance together.
    pub fn limit(self) -> Duration {
        match self {
            Self::Threads | Self::Stacks => Duration::from_secs(6),
            Self::Native => Duration::from_secs(20),
        }
    }

    /// After so long nobody waits for its answer: it may have waited for others first.
    pub fn within(self) -> Duration {
        self.limit() * 2 + GRACE * 2
    }
}

/// What is wanted of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// How deep.
    pub depth: Depth,
    /// What it may take.
    pub limit: Duration,
    /// For how long a debugger may stop a process.
    pub stop: Duration,
}

/// Looks at processes of this machine. Clones share the places for those under way: a look at a process that the
/// kernel does not let be read keeps its place, and its thread, until the kernel does.
#[derive(Clone, Debug)]
pub struct Looks(Arc<Semaphore>);

impl Default for Looks {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_ONCE)))
    }
}

impl Looks {
    /// The processes of a role, or why nothing is known of them. Answers within [`Depth::within`].
    pub async fn at(&self, running: Running, look: Look) -> Result<Vec<InspectedProcess>, String> {
        let place = tokio::time::timeout(look.limit, Arc::clone(&self.0).acquire_owned()).await;
        let Ok(Ok(place)) = place else {
            return Err(format!(
                "{AT_ONCE} looks are under way on its machine, and none ended within {:?}",
                look.limit
            ));
        };
        let (answer, answered) = oneshot::channel();
        // A thread of its own: one that the kernel holds keeps no end of the daemon waiting.
        let thread = std::thread::Builder::new().name("look".to_owned());
        let started = thread.spawn(move || {
            let found = inside(running, look);
            drop(place);
            // Whoever wanted it may have given up.
            let _ = answer.send(found);
        });
        if let Err(error) = started {
            return Err(format!("no thread can be started for it: {error}"));
        }
        match tokio::time::timeout(look.limit + GRACE, answered).await {
            Ok(Ok(found)) => Ok(found),
            _ => Err(format!(
                "the kernel does not let process {} be read: nothing came within {:?}",
                running.pid,
                look.limit + GRACE
            )),
        }
    }
}

/// The processes of a role: of a program that hosts others that one, then those. Blocks for up to the limit, and for
/// as long as the kernel holds a reader of `/proc`.
fn inside(running: Running, look: Look) -> Vec<InspectedProcess> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    inside_with(running, look, &path)
}

/// The same, with tools from this search path.
pub(super) fn inside_with(running: Running, look: Look, path: &OsStr) -> Vec<InspectedProcess> {
    let deadline = Instant::now() + look.limit;
    let own = match ProcStat::read(running.pid) {
        Ok(stat) if stat.start_time == running.start_time => stat,
        // Its number is another one's by now.
        Ok(_) => return vec![unread(running.pid, &io::ErrorKind::NotFound.into())],
        Err(error) => return vec![unread(running.pid, &error)],
    };
    let mut pids = vec![running.pid];
    if own.name == SHIM {
        pids.extend(hosted_by(running.pid));
    }
    let left_out = pids.len().saturating_sub(MOST_PROCESSES);
    pids.truncate(MOST_PROCESSES);
    let born: Vec<Option<u64>> = pids.iter().map(|pid| start_of(*pid)).collect();
    let before: Vec<Clocks> = pids
        .iter()
        .map(|pid| Clocks::read(*pid, deadline))
        .collect();
    std::thread::sleep(BETWEEN.min(look.limit / 4));
    let looked = pids.iter().zip(&before);
    let looked = looked.map(|(pid, before)| process(*pid, before, deadline));
    let mut looked: Vec<InspectedProcess> = looked.collect();
    let hosts = looked.len() > 1;
    for (process, born) in looked.iter_mut().zip(born) {
        // A shim keeps the link, and what matters is what it hosts. A number that is another one's by now is left alone.
        let is_wanted = !(hosts && process.pid == running.pid);
        if is_wanted && born.is_some() && start_of(process.pid) == born {
            add_stacks(process, look, deadline, path);
        }
    }
    if let Some(first) = looked.first_mut().filter(|_| left_out > 0) {
        let text = format!("{left_out} more of the processes that it hosts are not looked at");
        first.notes.push(text);
    }
    looked
}

/// When a process was started, which tells it from a later one of its number.
fn start_of(pid: u32) -> Option<u64> {
    let stat = ProcStat::read(pid);
    stat.ok().map(|stat| stat.start_time)
}

/// What the threads of a process had used at a moment.
#[derive(Default)]
struct Clocks {
    at: Option<Instant>,
    threads: HashMap<u32, Used>,
    /// Of all its threads.
    count: usize,
    /// Threads that were not read, for want of time.
    late: usize,
}

#[derive(Clone, Copy, Default)]
struct Used {
    nanos: u64,
    /// How often it came to run, where the kernel counts it.
    runs: Option<u64>,
}

impl Clocks {
    fn read(pid: u32, deadline: Instant) -> Self {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        let mut numbers: Vec<u32> = tasks
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|task| task.file_name().to_str()?.parse().ok())
            .collect();
        // The same ones each time, the main thread first.
        numbers.sort_unstable();
        let mut clocks = Self {
            at: Some(Instant::now()),
            count: numbers.len(),
            ..Self::default()
        };
        for (read, number) in numbers.iter().take(MOST_THREADS).enumerate() {
            if Instant::now() >= deadline {
                clocks.late = numbers.len() - read;
                break;
            }
            // It may have ended meanwhile.
            let used = used(&task(pid, *number));
            clocks.threads.extend(used.map(|used| (*number, used)));
        }
        clocks
    }
}

fn task(pid: u32, number: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/task/{number}"))
}

/// By the scheduler's own account, which is fine; else by the clock's ticks.
fn used(task: &Path) -> Option<Used> {
    let account = std::fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    let mut fields = account.split_ascii_whitespace();
    let mut number = || fields.next()?.parse::<u64>().ok();
    if let (Some(nanos), Some(_), Some(runs)) = (number(), number(), number())
        && runs > 0
    {
        let runs = Some(runs);
        return Some(Used { nanos, runs });
    }
    let stat = ProcStat::read_from(task.join("stat").to_str()?).ok()?;
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let nanos = (stat.user_ticks + stat.system_ticks) * tick;
    Some(Used { nanos, runs: None })
}

/// All of a process but the stacks that only tools have.
fn process(pid: u32, before: &Clocks, deadline: Instant) -> InspectedProcess {
    let stat = match ProcStat::read(pid) {
        Ok(stat) => stat,
        Err(error) => return unread(pid, &error),
    };
    let now = Clocks::read(pid, deadline);
    let since = |number: &u32, now: &Used| {
        let before = before.threads.get(number).copied().unwrap_or_default();
        Used {
            nanos: now.nanos.saturating_sub(before.nanos),
            runs: now.runs.map(|n| n.saturating_sub(before.runs.unwrap_or(0))),
        }
    };
    let used = now.threads.iter().map(|(n, now)| (*n, since(n, now)));
    let mut used: Vec<(u32, Used)> = used.collect();
    // The busiest, of equals the main thread, then the oldest.
    used.sort_by_key(|(number, used)| (u64::MAX - used.nanos, *number != pid, *number));
    let over = now.at.zip(before.at).map(|(now, before)| now - before);
    let mut process = InspectedProcess {
        pid,
        state: stat.state.to_string(),
        wchan: wchan(Path::new(&format!("/proc/{pid}"))),
        cpu_us: used.iter().map(|(_, used)| used.nanos).sum::<u64>() / 1000,
        over_us: micros(over.unwrap_or_default()),
        runs: used.iter().map(|(_, used)| used.runs).sum(),
        rss_bytes: stat
            .rss_pages
            .saturating_mul(rustix::param::page_size() as u64),
        thread_count: u32::try_from(now.count).unwrap_or(u32::MAX),
        notes: standing(&stat).into_iter().collect(),
        name: stat.name,
        ..InspectedProcess::default()
    };
    let shown = used.iter().take(SHOWN_THREADS);
    let mut hidden = false;
    for (number, used) in shown {
        let (thread, denied) = thread(pid, *number, *used);
        process.threads.extend(thread);
        hidden |= denied;
    }
    if hidden {
        let text = "the kernel's stacks are not shown: only root may read them";
        process.notes.push(text.to_owned());
    }
    if now.late > 0 {
        let text = format!("{} threads are not looked at: the time was over", now.late);
        process.notes.push(text);
    }
    process
}

/// What its state means for whoever waits for it.
fn standing(stat: &ProcStat) -> Option<String> {
    let text = match stat.state {
        'D' => {
            "it waits within the kernel where no signal reaches it (D): not even SIGKILL ends it before what it waits for \
             comes"
        }
        'T' => "it is stopped by a signal (T); SIGCONT lets it go on",
        't' => "a debugger holds it (t)",
        'Z' | 'X' | 'x' => "it has ended, and nobody has taken note of it yet",
        _ => return None,
    };
    Some(text.to_owned())
}

/// A thread, and whether its stack in the kernel may not be read; none: it has ended meanwhile.
fn thread(pid: u32, number: u32, used: Used) -> (Option<InspectedThread>, bool) {
    let task = task(pid, number);
    let stat = task.join("stat");
    let Ok(stat) = ProcStat::read_from(&stat.to_string_lossy()) else {
        return (None, false);
    };
    let stack = std::fs::read_to_string(task.join("stack"));
    let denied = stack
        .as_ref()
        .is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    let thread = InspectedThread {
        tid: number,
        name: stat.name,
        state: stat.state.to_string(),
        wchan: wchan(&task),
        cpu_us: used.nanos / 1000,
        frames: Vec::new(),
        kernel: kernel_frames(&stack.unwrap_or_default()),
    };
    (Some(thread), denied)
}

/// Where in the kernel it waits; empty: nowhere, or that is not to be known.
fn wchan(of: &Path) -> String {
    let text = std::fs::read_to_string(of.join("wchan")).unwrap_or_default();
    let text = text.trim();
    match text {
        "0" => String::new(),
        name => name.to_owned(),
    }
}

/// `[<0>] futex_wait_queue+0x66/0x90`, the innermost first.
fn kernel_frames(stack: &str) -> Vec<String> {
    let names = stack.lines().filter_map(|line| {
        let name = line.split_once("] ").map_or(line, |(_, name)| name);
        let name = name.split('+').next().unwrap_or_default().trim();
        (!name.is_empty()).then(|| name.to_owned())
    });
    names.take(KERNEL_FRAMES).collect()
}

/// A process of which nothing is known.
fn unread(pid: u32, error: &io::Error) -> InspectedProcess {
    // The file may be open still when the process goes: that is ESRCH.
    let gone = error.kind() == io::ErrorKind::NotFound
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error());
    let text = match gone {
        true => format!("process {pid} ended before it was looked at"),
        false => format!("process {pid} cannot be looked at: {error}"),
    };
    InspectedProcess {
        pid,
        notes: vec![text],
        ..InspectedProcess::default()
    }
}

/// Stacks as a tool shows them, or in a note why there are none.
fn add_stacks(process: &mut InspectedProcess, look: Look, deadline: Instant, path: &OsStr) {
    let gently = match look.depth {
        Depth::Threads => return,
        Depth::Stacks => true,
        Depth::Native => false,
    };
    let Ok(stat) = ProcStat::read(process.pid) else {
        return;
    };
    if process.state.is_empty() || stat.is_dead() {
        return;
    }
    let left = deadline.saturating_duration_since(Instant::now());
    let limit = left.min(if gently { TOOL_WITHIN } else { look.stop });
    if limit.is_zero() {
        let text = "no stacks: the time was over".to_owned();
        return process.notes.push(text);
    }
    let Some(told) = debugger::ask(process.pid, limit, path, gently) else {
        return process.notes.push(without_tool(process.pid, gently));
    };
    if !gently {
        process.stopped_us = micros(told.took);
        if matches!(told.end, End::CutOff(_)) && stat.state != 'T' {
            wake(process.pid, stat.start_time);
        }
    }
    process.notes.extend(told.wrong());
    let mut shown: HashMap<u32, Vec<String>> = frames::by_thread(&told.said).into_iter().collect();
    if shown.is_empty() && matches!(told.end, End::Well) {
        process.notes.push("no stack was shown of it".to_owned());
    }
    for thread in &mut process.threads {
        thread.frames = shown.remove(&thread.tid).unwrap_or_default();
    }
}

fn without_tool(pid: u32, gently: bool) -> String {
    let text = match (gently, debugger::is_python(pid)) {
        (true, true) => {
            "no stacks of Python: py-spy is not installed on its machine (in robustd's PATH)"
        }
        (true, false) => {
            "no stacks of its own code: only a debugger has them, which stops it for a moment (robustctl inspect --stacks \
             native)"
        }
        (false, _) => {
            "no stacks: neither gdb nor, for Python, py-spy is installed on its machine (in robustd's PATH)"
        }
    };
    text.to_owned()
}

/// A debugger that is killed between its attaching and its waiting leaves the stop behind with which it attached.
fn wake(pid: u32, start_time: u64) {
    let same = ProcStat::read(pid).is_ok_and(|stat| stat.start_time == start_time);
    let process = i32::try_from(pid).ok();
    let process = process.and_then(rustix::process::Pid::from_raw);
    if let Some(process) = process.filter(|_| same) {
        // It may just have ended.
        let _ = rustix::process::kill_process(process, rustix::process::Signal::CONT);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_kernels_frames_are_names_without_offsets() {
        let stack = "[<0>] futex_wait_queue+0x66/0x90\n[<0>] futex_wait+0x189/0x270\n";
        assert_eq!(kernel_frames(stack), ["futex_wait_queue", "futex_wait"]);
        assert!(kernel_frames("").is_empty());
        let deep = "[<0>] down+0x1/0x2\n".repeat(100);
        assert_eq!(kernel_frames(&deep).len(), KERNEL_FRAMES);
    }

    #[tokio::test]
    async fn where_all_places_are_taken_a_look_is_given_up_in_its_time() {
        let looks = Looks::default();
        let all = u32::try_from(AT_ONCE).unwrap();
        let held = looks.0.acquire_many(all).await.unwrap();
        let running = Running {
            pid: std::process::id(),
            start_time: ProcStat::read(std::process::id()).unwrap().start_time,
        };
        let look = Look {
            depth: Depth::Threads,
            limit: Duration::from_millis(100),
            stop: Duration::ZERO,
        };
        let refused = looks.at(running, look).await.unwrap_err();
        assert!(refused.contains("32 looks are under way"), "{refused}");
        drop(held);
        let look = Look {
            limit: Depth::Threads.limit(),
            ..look
        };
        let found = looks.at(running, look).await.unwrap();
        assert_eq!(found[0].pid, running.pid);
    }
}
