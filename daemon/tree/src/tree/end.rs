//! The end of a tree.
//!
//! ```text
//! gentle signal ──► all gone within the grace? ──yes──► Ended { gentle: true }
//!                         │ no
//!                         ▼
//!         ┌──► scan, SIGKILL to all ──► nobody left ──► Ended { gentle: false, killed }
//!         └──── until the bound ───────► somebody is ──► Ended { .., left }
//! ```
use super::watch::Shared;
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

/// How often new members are looked for while a tree ends.
const TURN: Duration = Duration::from_millis(20);

/// How a tree is to be ended.
#[derive(Clone, Debug)]
pub struct EndPlan {
    /// The signal that asks every member to end.
    pub signal: Signal,
    /// How long they may take. Zero kills at once.
    pub grace: Duration,
    /// How long after SIGKILL somebody may still be there: what sleeps in a driver dies only when
    /// the driver lets go of it.
    pub bound: Duration,
}

impl Default for EndPlan {
    /// SIGTERM, ten seconds, ten seconds.
    fn default() -> Self {
        Self {
            signal: Signal::TERM,
            grace: Duration::from_secs(10),
            bound: Duration::from_secs(10),
        }
    }
}

/// What it took to end a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Whether nobody had to be killed.
    pub gentle: bool,
    /// Process ids and names of those that were killed.
    pub killed: Vec<(u32, String)>,
    /// Those that are there all the same.
    pub left: Vec<Left>,
}

/// A process that SIGKILL did not end within the bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its state as in `/proc/PID/stat`; `D` is a sleep that no signal interrupts.
    pub state: char,
}

impl fmt::Display for Left {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, name, state } = self;
        write!(f, "{name} (pid {pid}) is in ")?;
        match state {
            'D' => f.write_str("uninterruptible sleep"),
            state => write!(f, "state {state}"),
        }
    }
}

pub fn end(shared: &Shared, plan: &EndPlan) -> Ended {
    let begun = Instant::now();
    let mut table = shared.scanned();
    table.begin_end();
    if !plan.grace.is_zero() {
        table.signal_all(plan.signal);
    }
    drop(table);
    let mut killed = BTreeSet::new();
    if !gone_by(shared, begun + plan.grace, |_| {}) {
        let bound = Instant::now() + plan.bound;
        gone_by(shared, bound, |shared| kill_all(shared, &mut killed));
    }
    let left = left(shared);
    Ended {
        gentle: killed.is_empty() && left.is_empty(),
        killed: killed.into_iter().collect(),
        left,
    }
}

/// Whether nobody is left at some moment before the deadline.
fn gone_by(shared: &Shared, deadline: Instant, mut strike: impl FnMut(&Shared)) -> bool {
    loop {
        strike(shared);
        let table = shared.scanned();
        if table.is_empty() {
            return true;
        }
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return false;
        }
        shared.wait_departure(table, rest.min(TURN));
    }
}

fn kill_all(shared: &Shared, killed: &mut BTreeSet<(u32, String)>) {
    for process in shared.scanned().processes() {
        if pidfd_send_signal(&process.pidfd, Signal::KILL).is_ok() {
            killed.insert((process.pid, process.name.clone()));
        }
    }
}

fn left(shared: &Shared) -> Vec<Left> {
    let table = shared.scanned();
    let left = table.processes().map(|process| Left {
        pid: process.pid,
        name: process.name.clone(),
        state: process.stat.state,
    });
    left.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_left_is_told_with_its_state() {
        let left = |state| {
            let (pid, name) = (7, "VLLM::Worker".to_owned());
            Left { pid, name, state }.to_string()
        };
        let asleep = "VLLM::Worker (pid 7) is in uninterruptible sleep";
        assert_eq!(left('D'), asleep);
        assert_eq!(left('R'), "VLLM::Worker (pid 7) is in state R");
    }
}
