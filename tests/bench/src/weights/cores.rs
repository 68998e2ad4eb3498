//! Whether two measurements met the same machine.
//!
//! The host of a virtual machine moves its cores about. Two that share a cache hand a line over in
//! about 40 ns, two that do not in about 180 ns, for seconds to minutes at a time; and what goes from
//! one process to another through memory, TCP on loopback among it, takes two to three times as long
//! meanwhile. A ratio of two figures says something only if both met the same.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::Report;

/// Hand-overs of one try: a few milliseconds.
const TURNS: u32 = 20_000;
/// Tries of which the quickest counts: others may have been interrupted.
const TRIES: usize = 3;
/// The cores moved if a hand-over takes so many times as long as before, or the other way round.
const MOVED: f64 = 2.0;
/// How often the same is measured, at most, because the cores moved meanwhile.
const MEASURED: usize = 6;

/// Measures with cores that stay where they are: again if they moved, unless that never ends. Notes in
/// which time they hand a cache line over.
pub(crate) fn steadily<T>(
    report: &mut Report,
    mut measure: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let mut before = handover_ns();
    for _ in 1..MEASURED {
        let measured = measure()?;
        let after = handover_ns();
        let (Some(was), Some(is)) = (before, after) else {
            return Ok(measured);
        };
        if !moved(was, is) {
            report.add("handover_ns", is);
            return Ok(measured);
        }
        report.say(&format!(
            "the cores moved ({was:.0} ns to {is:.0} ns from one to the other): measured again"
        ));
        before = after;
    }
    measure()
}

/// Time that all threads of a process ran.
pub(crate) fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let mut nanos = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        let ran = text
            .split_whitespace()
            .next()
            .context("schedstat is empty")?;
        nanos += ran.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

/// Nanoseconds in which a cache line goes from one core to another, the first two that this process
/// may run on; none if there is only one.
fn handover_ns() -> Option<f64> {
    let allowed = sched_getaffinity(None).ok()?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
    let (here, there) = (cores.next()?, cores.next()?);
    let tries = (0..TRIES).map(|_| hand_over(here, there));
    Some(tries.fold(f64::INFINITY, f64::min))
}

/// Whether the cores moved apart, or together, from one measurement to the other.
fn moved(before_ns: f64, after_ns: f64) -> bool {
    before_ns.max(after_ns) > MOVED * before_ns.min(after_ns)
}

/// Threads of their own: this one stays free to run anywhere.
fn hand_over(here: usize, there: usize) -> f64 {
    let turn = AtomicU32::new(0);
    let play = |core: usize, first: u32| {
        pin(core);
        let started = Instant::now();
        for mine in (first..TURNS).step_by(2) {
            while turn.load(Ordering::Acquire) != mine {
                std::hint::spin_loop();
            }
            turn.store(mine + 1, Ordering::Release);
        }
        started.elapsed()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| play(there, 1));
        let whole = scope.spawn(|| play(here, 0)).join();
        whole.map_or(f64::NAN, |time| time.as_secs_f64() * 1e9 / f64::from(TURNS))
    })
}

/// Not being pinned costs accuracy only.
fn pin(core: usize) {
    let mut only = CpuSet::new();
    only.set(core);
    let _ = sched_setaffinity(None, &only);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_that_hand_over_as_quickly_as_before_have_not_moved() {
        assert!(!moved(40.0, 60.0));
        assert!(moved(40.0, 180.0));
        assert!(moved(180.0, 40.0));
    }

    #[test]
    fn a_line_is_handed_over_in_some_time_where_there_are_two_cores() {
        if let Some(ns) = handover_ns() {
            assert!(ns > 0.0, "{ns}");
        }
    }
}
