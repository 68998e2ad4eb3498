//! With real processes and a driver that hangs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
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
fn until(
    samples: &mut UnboundedReceiver<Vec<ProcessSample>>,
    wanted: impl Fn(&Usage) -> bool,
) -> Usage {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        let batch = samples.blocking_recv().unwrap();
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
    let telemetry = Telemetry::start(Duration::from_millis(20), sender).unwrap();
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
    while !samples.blocking_recv().unwrap().is_empty() {}
}

#[test]
fn a_process_that_is_gone_has_no_sample() {
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    assert!(usage(pid).is_err());
}

struct Hangs(u32);

impl Accelerators for Hangs {
    fn sample(&mut self) -> Result<Vec<SlotSample>, String> {
        self.0 += 1;
        if self.0 == 2 {
            loop {
                std::thread::park();
            }
        }
        Ok(vec![SlotSample {
            index: 0,
            util_percent: Some(50.0),
            ..SlotSample::default()
        }])
    }
}

#[test]
fn a_driver_call_that_hangs_is_overdue_and_blocks_no_reader() {
    let (interval, deadline) = (Duration::from_millis(1), Duration::from_millis(30));
    let sampler = SlotSampler::start(Box::new(Hangs(0)), interval, deadline).unwrap();
    let began = Instant::now();
    while !sampler.read().overdue {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(5));
    }
    let reading = sampler.read();
    assert_eq!(reading.samples[0].util_percent, Some(50.0));
    assert!(reading.age >= deadline);
}

/// Holds on a machine with NVML and on one without.
#[test]
fn accelerators_are_those_nvml_sees_or_none() {
    let seen = NvmlAccelerators::open().map_or(0, |nvml| nvml.count() as usize);
    assert_eq!(detect_accelerators().sample().unwrap().len(), seen);
}
