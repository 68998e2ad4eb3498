//! A process that runs for a part of the time only: stopped and continued in turn.
//!
//! ```text
//!  daemon ──starts──► helper (robustd slow-role) ── STOP, CONT, STOP, CONT ... ──► group
//!     │                  ▲        ends with CONT: the time is over, the process is gone,
//!     └── a pipe ────────┘                        or the pipe is closed
//!     └── a thread waits for the helper; when it was killed, the daemon says CONT
//! ```
//! Nothing may stay stopped for ever, so the signals are not the daemon's own: when the daemon dies,
//! however it dies, the pipe closes, and the helper lets the process go on. The helper has a group
//! of its own, so that what ends the daemon's group does not end it in the middle. Only both killed
//! in the same moment leave a process stopped; then it looks like one that hangs, and its rule ends it.
use super::proc_stat::ProcStat;
use super::{Launcher, Running};
use robust_shared::ids::Incarnation;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Stopped and running, once: short enough that every activity sample sees it run.
const PERIOD: Duration = Duration::from_millis(100);

/// What the helper is told.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct SlowArgs {
    /// The process, which leads its group.
    #[arg(long)]
    pub pid: u32,
    /// Field 22 of its `stat`.
    #[arg(long)]
    pub start_time: u64,
    /// The part of the time it runs.
    #[arg(long)]
    pub percent: u8,
    /// For so long.
    #[arg(long)]
    pub ms: u64,
}

/// A process that is slowed down, until this is dropped.
#[derive(Debug)]
pub struct Slowed {
    /// Closing it ends the helper.
    pipe: Option<ChildStdin>,
    waiting: Option<JoinHandle<()>>,
}

impl Slowed {
    /// Starts the helper, which is `program`.
    pub fn start(
        program: &Path,
        launcher: &Launcher,
        incarnation: Incarnation,
        args: SlowArgs,
    ) -> io::Result<Self> {
        let mut helper = Command::new(program)
            .arg("slow-role")
            .args(["--pid", &args.pid.to_string()])
            .args(["--start-time", &args.start_time.to_string()])
            .args(["--percent", &args.percent.to_string()])
            .args(["--ms", &args.ms.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = helper.stdin.take();
        let launcher = launcher.clone();
        let waiting = std::thread::Builder::new().name("slow".to_owned());
        let waiting = waiting.spawn(move || wait(&mut helper, &launcher, incarnation))?;
        Ok(Self {
            pipe,
            waiting: Some(waiting),
        })
    }
}

/// A helper that was killed may have left the process stopped.
fn wait(helper: &mut Child, launcher: &Launcher, incarnation: Incarnation) {
    if !helper.wait().is_ok_and(|status| status.success()) {
        launcher.signal(incarnation, Signal::CONT);
    }
}

impl Drop for Slowed {
    /// Waits until the process goes on, which takes milliseconds: what comes next may be to stop it.
    fn drop(&mut self) {
        self.pipe = None;
        if let Some(waiting) = self.waiting.take() {
            let _ = waiting.join();
        }
    }
}

/// The helper: slows the process down until the time is over, the process is gone or `daemon` is
/// closed.
pub fn slow_down(args: &SlowArgs, daemon: impl std::os::fd::AsFd) -> io::Result<()> {
    let pid = i32::try_from(args.pid).ok().and_then(Pid::from_raw);
    let group = pid.ok_or(io::ErrorKind::InvalidInput)?;
    let end = Instant::now() + Duration::from_millis(args.ms);
    let running = PERIOD * u32::from(args.percent) / 100;
    let mut stopped = false;
    let mut ended = false;
    while !ended && is_itself(args) && Instant::now() < end {
        stopped = !stopped;
        let (signal, pause) = match stopped {
            true => (Signal::STOP, PERIOD.saturating_sub(running)),
            false => (Signal::CONT, running),
        };
        if kill_process_group(group, signal).is_err() {
            return Ok(());
        }
        ended = closed(&daemon, pause);
    }
    if is_itself(args) {
        let _ = kill_process_group(group, Signal::CONT);
    }
    Ok(())
}

fn is_itself(args: &SlowArgs) -> bool {
    let same = |s: ProcStat| s.start_time == args.start_time && !s.is_dead();
    ProcStat::read(args.pid).is_ok_and(same)
}

/// Whether the other end is closed within this time. Nothing is ever written to it.
fn closed(daemon: &impl std::os::fd::AsFd, within: Duration) -> bool {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = rustix::event::Timespec {
            tv_sec: 0,
            // Less than a period.
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut fds = [PollFd::new(daemon, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}

/// What [`Slowed::start`] is told of a process.
pub fn args_for(process: Running, percent: u8, lasts: Duration) -> SlowArgs {
    SlowArgs {
        pid: process.pid,
        start_time: process.start_time,
        percent,
        ms: u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn state(pid: u32) -> char {
        ProcStat::read(pid).unwrap().state
    }

    fn until(what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !holds() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn sleeper() -> (Child, Running) {
        let mut command = Command::new("sleep");
        let child = command.arg("600").process_group(0).spawn().unwrap();
        let pid = child.id();
        let start_time = ProcStat::read(pid).unwrap().start_time;
        (child, Running { pid, start_time })
    }

    #[test]
    fn a_process_stops_and_goes_on_in_turn_until_whoever_wants_it_is_gone() {
        let (mut child, process) = sleeper();
        let (read, write) = std::io::pipe().unwrap();
        let args = args_for(process, 50, Duration::from_secs(600));
        let helper = std::thread::spawn(move || slow_down(&args, &read));
        for _ in 0..2 {
            until("stopped", || state(process.pid) == 'T');
            until("runs", || state(process.pid) != 'T');
        }
        drop(write);
        helper.join().unwrap().unwrap();
        until("left running", || state(process.pid) != 'T');
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn it_ends_with_its_time_and_with_the_process() {
        let (mut child, process) = sleeper();
        let (read, _write) = std::io::pipe().unwrap();
        slow_down(&args_for(process, 10, Duration::from_millis(250)), &read).unwrap();
        until("left running", || state(process.pid) != 'T');
        child.kill().unwrap();
        child.wait().unwrap();
        slow_down(&args_for(process, 10, Duration::from_secs(600)), &read).unwrap();
    }
}
