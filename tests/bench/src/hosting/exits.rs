//! When processes end that are about to be killed.

use super::processes::Process;
use super::scene::now_ms;
use robustctl::measuring::CliError;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, setpriority_process};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// The watching thread's place before those that compute, where it is permitted: what is measured is when a
/// process ended, and not when a busy machine had time to look.
const FIRST: i32 = -20;

/// Processes whose ends are watched.
pub struct Exits {
    first: Receiver<f64>,
}

impl Exits {
    /// Watches these from now on.
    pub fn watch(processes: &[Process]) -> Result<Self, CliError> {
        let open = |process: &Process| {
            let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
            pidfd_open(pid.ok_or(Errno::SRCH)?, PidfdFlags::empty())
        };
        // One that ended this moment is not struck either.
        let pidfds: Vec<OwnedFd> = processes.iter().flat_map(open).collect();
        let (tell, first) = channel();
        let failed = |e| CliError::Failed(format!("no thread for the ends of processes: {e}"));
        let name = thread::Builder::new().name("exits".to_owned());
        name.spawn(move || run(&pidfds, &tell)).map_err(failed)?;
        Ok(Self { first })
    }

    /// When the first of them ended, in milliseconds since 1970; nothing while all live.
    pub fn first_ms(&self) -> Option<f64> {
        self.first.try_recv().ok()
    }
}

/// Ends with the first of them: who is struck does not outlive its engine.
fn run(pidfds: &[OwnedFd], tell: &Sender<f64>) {
    // Without the right to it the figure has the machine's load in it.
    let _ = setpriority_process(None, FIRST);
    let all = pidfds.iter();
    let mut fds: Vec<PollFd<'_>> = all.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    while let Err(Errno::INTR) = poll(&mut fds, None) {}
    // The one who asked may have given up.
    let _ = tell.send(now_ms());
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::processes::engine_of;
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_end_of_a_process_is_seen_when_it_is_there() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        let all = engine_of(std::process::id());
        let of_child = all.into_iter().filter(|process| process.pid == child.id());
        let exits = Exits::watch(&of_child.collect::<Vec<Process>>()).unwrap();
        let living = exits.first_ms();
        let before = now_ms();
        child.kill().unwrap();
        let seen = exits.first.recv_timeout(Duration::from_secs(60));
        child.wait().unwrap();
        assert_eq!(living, None);
        assert!(seen.unwrap() >= before);
    }
}
