//! A driver whose call never returns.
use super::super::*;
use super::nvml::stage;
use super::{Killed, until};
use crate::launcher::proc_stat::{SHIM, hosted_by};
use robust_shared::hardware::FindingKind;
use robust_shared::ids::Incarnation;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// A device that says it is used by a program, and after its end, that this did something wrong.
struct Hosted {
    program: u32,
    ended: Arc<AtomicBool>,
    told: bool,
}

impl Accelerators for Hosted {
    fn devices(&self) -> Vec<u32> {
        vec![3]
    }

    fn sample(&mut self, device: u32) -> DeviceSample {
        let reading = robust_shared::hardware::Reading {
            index: device,
            tensor_percent: Some(50.0),
            ..Default::default()
        };
        let gone = self.ended.load(Ordering::Relaxed);
        let pids = if gone { vec![] } else { vec![self.program] };
        DeviceSample { reading, pids }
    }

    fn xids(&mut self) -> Vec<(Option<u32>, u32)> {
        let tells = self.ended.load(Ordering::Relaxed) && !std::mem::replace(&mut self.told, true);
        if tells { vec![(Some(3), 31)] } else { vec![] }
    }
}

#[test]
fn a_device_is_used_by_whoever_hosts_the_program_that_it_names_even_when_that_has_just_ended() {
    let dir = tempfile::tempdir().unwrap();
    let shim = dir.path().join(SHIM);
    std::fs::write(&shim, "#!/bin/sh\nsleep 600 &\nwait\nread line\n").unwrap();
    std::fs::set_permissions(&shim, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut shim = Command::new(&shim);
    let shim = Killed(shim.stdin(Stdio::piped()).spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(20);
    let program = loop {
        assert!(Instant::now() < deadline, "it hosts nothing");
        if let [program] = hosted_by(shim.0.id())[..] {
            break program;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let ended = Arc::new(AtomicBool::new(false));
    let device = Hosted {
        program,
        ended: Arc::clone(&ended),
        told: false,
    };
    let open = move || Box::new(device) as Box<dyn Accelerators>;
    let devices = DeviceSampler::start(open, fast(Duration::from_secs(600))).unwrap();
    let sources = Sources {
        devices: Some(devices),
        host: None,
    };
    let (sender, mut samples) = unbounded_channel();
    let telemetry = Telemetry::start(Duration::from_millis(5), sources, sender).unwrap();
    telemetry.watch(Incarnation(1), shim.0.id());
    until(&mut samples, |usage| usage.accelerator.is_some());
    let pid = rustix::process::Pid::from_raw(program as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    while hosted_by(shim.0.id()).contains(&program) {
        assert!(Instant::now() < deadline, "it is killed");
        std::thread::sleep(Duration::from_millis(1));
    }
    // Two samples later it is known to be gone.
    samples.blocking_recv().unwrap();
    while samples.try_recv().is_ok() {}
    samples.blocking_recv().unwrap();
    ended.store(true, Ordering::Relaxed);
    let found = loop {
        assert!(Instant::now() < deadline, "the Xid is told");
        let batch = samples.blocking_recv().unwrap();
        if let Some(found) = batch.devices.findings.into_iter().next() {
            break found;
        }
    };
    assert_eq!(found.finding.kind, FindingKind::Xid(31));
    assert_eq!(found.users, [Incarnation(1)]);
}
