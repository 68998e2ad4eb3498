//! A driver whose call never returns.
use super::super::*;
use super::nvml::stage;
use super::{Killed, until};
use robust_shared::hardware::FindingKind;
use robust_shared::ids::Incarnation;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::unbounded_channel;

fn fast(stuck_after: Duration) -> DeviceConfig {
    DeviceConfig {
        interval: Duration::from_millis(1),
        stuck_after,
        ..DeviceConfig::default()
    }
}

#[test]
fn a_driver_that_hangs_is_found_and_processes_are_sampled_on() {
    let (_dir, library) = stage("driver_hang");
    let open = move || detect_accelerators(library.as_os_str());
    let devices = DeviceSampler::start(open, fast(Duration::from_millis(50))).unwrap();
    let sources = Sources {
        devices: Some(devices),
        host: None,
    };
    let sleeper = Killed(Command::new("sleep").arg("600").spawn().unwrap());
    let (sender, mut samples) = unbounded_channel();
    let telemetry = Telemetry::start(Duration::from_millis(5), sources, sender).unwrap();
    telemetry.watch(Incarnation(1), sleeper.0.id());
    let deadline = Instant::now() + Duration::from_secs(20);
    let stuck = loop {
        assert!(Instant::now() < deadline);
        let batch = samples.blocking_recv().unwrap();
        if !batch.devices.findings.is_empty() {
            break batch.devices;
        }
    };
    assert_eq!(stuck.findings.len(), 1);
    assert_eq!(stuck.findings[0].finding.kind, FindingKind::DriverStuck);
    assert!(stuck.stuck.is_some());
    // What was read before stays, and says of itself that it is old: no activity is made up.
    assert_eq!(stuck.seen[0].reading.temperature_c, Some(58));
    assert!(stuck.seen[0].age >= Duration::from_millis(3));
    assert_eq!(stuck.seen[0].busy, None);
    for _ in 0..20 {
        let batch = samples.blocking_recv().unwrap();
        assert_eq!(batch.devices.findings, [], "it is told once");
        assert_eq!(batch.processes.len(), 1);
    }
    // And the thread that is stuck is waited for by nobody.
    drop(telemetry);
    while samples.blocking_recv().is_some() {}
}

/// Reports one device as busy as it is told to be, used by the process.
struct Half(u32);

impl Accelerators for Half {
    fn devices(&self) -> Vec<u32> {
        vec![3]
    }

    fn sample(&mut self, device: u32) -> DeviceSample {
        let reading = robust_shared::hardware::Reading {
            index: device,
            tensor_percent: Some(50.0),
            ..Default::default()
        };
        let pids = vec![self.0];
        DeviceSample { reading, pids }
    }

    fn xids(&mut self) -> Vec<(Option<u32>, u32)> {
        vec![]
    }
}

#[test]
fn a_process_on_a_device_is_as_busy_as_the_device() {
    let sleeper = Killed(Command::new("sleep").arg("600").spawn().unwrap());
    let pid = sleeper.0.id();
    let config = fast(Duration::from_secs(600));
    // An interval so long that a busy machine cannot make a reading look old.
    let config = DeviceConfig {
        interval: Duration::from_millis(200),
        ..config
    };
    let devices = DeviceSampler::start(move || Box::new(Half(pid)), config).unwrap();
    let sources = Sources {
        devices: Some(devices),
        host: None,
    };
    let (sender, mut samples) = unbounded_channel();
    let telemetry = Telemetry::start(Duration::from_millis(20), sources, sender).unwrap();
    telemetry.watch(Incarnation(1), pid);
    let began = Instant::now();
    let long = Duration::from_millis(300);
    let seen = until(&mut samples, |u| u.accelerator.is_some_and(|b| b >= long));
    let (accelerator, elapsed) = (seen.accelerator.unwrap(), began.elapsed());
    assert!(seen.busy < long, "it sleeps, only its device works");
    // Half of the time, and at most an interval more.
    assert!(accelerator <= elapsed.mul_f64(0.5) + Duration::from_millis(200));
}
