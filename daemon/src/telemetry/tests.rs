//! With real processes, and with the real loader on a library that plays a driver.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod host;
mod nvml;
mod stuck;

use super::processes::Watched;
use super::*;
use robust_shared::ids::Incarnation;
use std::process::{Child, Command};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The next sample that satisfies `wanted`, within 20 s.
fn until(samples: &mut UnboundedReceiver<Samples>, wanted: impl Fn(&Usage) -> bool) -> Usage {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        let batch = samples.blocking_recv().unwrap().processes;
        if let Some(sample) = batch.iter().find(|s| wanted(&s.usage)) {
            assert_eq!(sample.incarnation, Incarnation(1));
            return sample.usage;
        }
    }
    panic!("no such sample within 20 s");
}

#[test]
fn a_busy_process_gains_processor_time_and_a_stopped_one_does_not() {
    let busy = Killed(
        Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap(),
    );
    let pid = rustix::process::Pid::from_child(&busy.0);
    let (sender, mut samples) = unbounded_channel();
    let telemetry =
        Telemetry::start(Duration::from_millis(20), Sources::default(), sender).unwrap();
    telemetry.watch(Incarnation(1), busy.0.id());
    let first = until(&mut samples, |u| u.busy > Duration::ZERO);
    assert!(first.rss_bytes > 0 && !first.stopped);
    until(&mut samples, |u| u.busy > first.busy);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let stopped = until(&mut samples, |u| u.stopped);
    for _ in 0..5 {
        assert_eq!(until(&mut samples, |_| true), stopped);
    }
    telemetry.unwatch(Incarnation(1));
    while !samples.blocking_recv().unwrap().processes.is_empty() {}
}

#[test]
fn a_process_that_is_gone_has_no_sample() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    assert!(Watched::new(pid).look().is_err());
}
