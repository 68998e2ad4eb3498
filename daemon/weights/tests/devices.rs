//! Versions in devices' memory travel between real processes, over a driver of plain memory; with
//! `ROBUST_TEST_DEVICE` set, over the machine's own driver and its first device (`make test-device`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use support::{MIB, Puller, Source, Version};
use tempfile::TempDir;

const LOOPBACK: &str = "127.0.0.1";

/// A folder with the driver, for processes to load; none where they load the machine's own.
struct Driver(Option<TempDir>);

impl Driver {
    fn new() -> Self {
        if std::env::var_os("ROBUST_TEST_DEVICE").is_some() {
            return Self(None);
        }
        let dir = tempfile::tempdir().unwrap();
        cuda_fake::Fake::install(dir.path()).unwrap();
        Self(Some(dir))
    }

    /// What goes before a program that keeps its versions on a device.
    fn wrap(&self, device: usize, buffer_mib: usize) -> Vec<String> {
        let device = if self.0.is_some() { device } else { 0 };
        let folder = self.0.as_ref();
        let library = folder.map(|dir| format!("LD_LIBRARY_PATH={}", dir.path().display()));
        let mut words = vec!["env".to_owned()];
        words.extend(library);
        words.push(format!("ROBUST_WEIGHTS_DEVICE={device}"));
        words.push(format!("ROBUST_WEIGHTS_BUFFER_MIB={buffer_mib}"));
        words
    }
}

#[test]
fn a_version_goes_through_devices_and_hosts_and_comes_out_the_same() {
    let (driver, bytes) = (Driver::new(), 16 * MIB + 20_000);
    let version = Version {
        common: 5,
        ..Version::new(1, bytes, MIB)
    };
    let mut source = Source::start_in(1, version, &driver.wrap(0, 4), LOOPBACK);
    let wraps = [driver.wrap(0, 4), Vec::new(), driver.wrap(1, 4), Vec::new()];
    let mut pullers: Vec<Puller> = (2..)
        .zip(&wraps)
        .map(|(id, wrap)| Puller::start_in(id, bytes, wrap, LOOPBACK))
        .collect();
    for (number, expected) in [(1, bytes), (2, bytes - 5 * MIB)] {
        if number == 2 {
            // Another source: the common chunks are taken from what is served.
            let next = Version {
                common: 5,
                ..Version::new(2, bytes, MIB)
            };
            source = Source::start_in(9, next, &driver.wrap(1, 4), LOOPBACK);
        }
        let mut from = source.line();
        let before: Vec<u64> = pullers.iter_mut().map(|p| p.node.fetched()).collect();
        for puller in &mut pullers {
            puller.order(&source.manifest, &[from]);
            from = puller.line();
        }
        for (puller, before) in pullers.iter_mut().zip(before) {
            assert_eq!(puller.node.wait_done(number), ("ok".into(), None));
            assert_eq!(puller.node.checked(), Some(number));
            assert_eq!(puller.node.fetched() - before, expected as u64);
        }
    }
}

#[test]
fn damage_in_a_relays_device_memory_is_found_by_whoever_pulls_from_it() {
    let (driver, bytes) = (Driver::new(), 8 * MIB);
    let source = Source::start(1, Version::new(1, bytes, MIB));
    let mut relay = Puller::start_in(2, bytes, &driver.wrap(0, 4), LOOPBACK);
    relay.order(&source.manifest, &[source.line()]);
    assert_eq!(relay.node.wait_done(1).0, "ok");
    relay.node.corrupt(3 * MIB + 5, 1);
    let mut puller = Puller::start_in(3, bytes, &driver.wrap(1, 4), LOOPBACK);
    puller.order(&source.manifest, &[relay.line()]);
    assert_eq!(puller.node.wait_done(1), ("corrupt".into(), Some(2)));
    puller.order(&source.manifest, &[source.line()]);
    assert_eq!(puller.node.wait_done(1), ("ok".into(), None));
    assert_eq!(puller.node.checked(), Some(1));
}

#[test]
fn a_relay_with_a_device_dies_in_mid_pull_and_who_follows_it_keeps_what_it_has() {
    let (driver, bytes) = (Driver::new(), 24 * MIB);
    let source = Source::start(1, Version::new(1, bytes, MIB / 2));
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        let mut relay = Puller::start_in(2, bytes, &driver.wrap(0, 4), LOOPBACK);
        let mut puller = Puller::start_in(3, bytes, &driver.wrap(0, 4), LOOPBACK);
        // It never gets the rest: the cut is in the middle, wherever the kill finds it.
        relay.order(&source.manifest, &[source.part(0, 10 * MIB)]);
        puller.order(&source.manifest, &[relay.line()]);
        puller.wait_bytes(1, 6 * MIB as u64);
        relay.node.signal(signal);
        assert_eq!(puller.node.wait_done(1), ("source".into(), Some(2)));
        puller.order(&source.manifest, &[source.line()]);
        assert_eq!(puller.node.wait_done(1), ("ok".into(), None));
        assert_eq!(puller.node.checked(), Some(1));
        let again = puller.node.fetched() - bytes as u64;
        assert!(again <= MIB as u64 / 2, "{again} bytes came twice");
    }
}

#[test]
fn without_a_driver_a_device_is_one_clear_error() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_robust-weights"));
    command.args(["pull", "--bytes", "1024", "--token", "t", "--device", "0"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if !said.contains("libcuda.so") {
        return robust_needs::elsewhere("this machine has a CUDA driver", "machines without one");
    }
    assert!(!output.status.success());
    let error = "no usable CUDA driver: its library, libcuda.so, cannot be loaded";
    assert!(said.contains(error) && !said.contains("panicked"), "{said}");
}
