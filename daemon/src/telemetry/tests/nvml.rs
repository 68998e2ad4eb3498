//! Recorded scenarios, played by a library with NVML's symbols and read by the real loader. Rounds
//! are counted in calls, so nothing here waits.
use super::super::sampler::Rounds;
use super::super::*;
use robust_shared::hardware::{Advice, Finding, FindingKind, Slowdown, WatchConfig};
use robust_shared::time::Time;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The library and a scenario in a folder of their own: every copy has its own state.
pub(super) fn stage(scenario: &str) -> (TempDir, PathBuf) {
    let test = std::env::current_exe().unwrap();
    let built = test.with_file_name("libnvml_fake.so");
    let dir = tempfile::tempdir().unwrap();
    let library = dir.path().join("libnvidia-ml.so.1");
    std::fs::copy(&built, &library).unwrap();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures/nvml")
        .join(scenario)
        .with_extension("toml");
    std::fs::copy(fixture, dir.path().join("scenario.toml")).unwrap();
    (dir, library)
}

/// The first round is spent on opening: handles are asked for, to see who may be used.
struct Played {
    rounds: Rounds,
    now: Time,
    _dir: TempDir,
}

impl Played {
    fn new(scenario: &str) -> Self {
        let (dir, library) = stage(scenario);
        let nvml = NvmlAccelerators::open(library.as_os_str()).unwrap();
        Self {
            rounds: Rounds::new(Box::new(nvml), &WatchConfig::default()),
            now: Time::default(),
            _dir: dir,
        }
    }

    /// A round, a second after the one before.
    fn round(&mut self) -> (Vec<DeviceSample>, Vec<DeviceFinding>) {
        self.now = self.now + Duration::from_secs(1);
        self.rounds.alone(self.now)
    }

    /// The findings of so many rounds, without their devices.
    fn found(&mut self, rounds: usize) -> Vec<Finding> {
        let found = (0..rounds).flat_map(|_| self.round().1);
        found.map(|f| f.finding).collect()
    }

    fn kinds(&mut self, rounds: usize) -> Vec<FindingKind> {
        self.found(rounds).iter().map(|f| f.kind).collect()
    }
}

#[test]
fn idle_hopper_devices_are_read_in_full_and_show_nothing() {
    let mut played = Played::new("hopper_idle");
    let (samples, found) = played.round();
    assert_eq!(found, []);
    assert_eq!(samples.len(), 2);
    let first = &samples[1].reading;
    assert_eq!(
        first.tensor_percent, None,
        "activity is between two samples"
    );
    let (samples, _) = played.round();
    let second = &samples[1].reading;
    assert_eq!((second.index, second.lost.as_ref()), (1, None));
    assert_eq!(second.activity_percent(true), Some(0.0));
    assert_eq!(
        (second.tensor_percent, second.sm_percent),
        (Some(0.0), Some(0.0))
    );
    assert_eq!(second.memory_total_bytes, Some(150_754_820_096));
    assert_eq!(
        (second.temperature_c, second.power_w),
        (Some(31), Some(76.4))
    );
    let ecc = [
        second.ecc_corrected,
        second.ecc_uncorrected,
        second.ecc_corrected_ever,
        second.ecc_uncorrected_ever,
    ];
    assert_eq!(ecc, [Some(0), Some(0), Some(100), Some(100)]);
    assert_eq!(second.remapped_rows, Some(0));
    assert_eq!(
        (second.remap_pending, second.remap_failed),
        (Some(false), Some(false))
    );
    assert_eq!(
        second.slowdown, None,
        "low clocks of an idle device are no slowdown"
    );
    let links = [
        second.nvlink_replays,
        second.nvlink_recoveries,
        second.pcie_replays,
    ];
    assert_eq!(links, [Some(0); 3]);
    assert_eq!(played.found(600), []);
}

#[test]
fn a_training_hopper_device_is_as_busy_as_its_tensor_cores() {
    let mut played = Played::new("hopper_busy");
    played.round();
    let reading = played.round().0.remove(0).reading;
    assert_eq!(reading.activity_percent(true), Some(44.25));
    assert_eq!(
        (reading.sm_percent, reading.util_percent),
        (Some(91.5), Some(98.0))
    );
    assert_eq!(reading.slowdown, None, "a power cap is no slowdown");
    assert_eq!(played.found(600), []);
}

#[test]
fn before_hopper_activity_is_that_of_multiprocessors_and_links_are_summed() {
    let mut played = Played::new("pre_hopper");
    let sample = played.round().0.remove(0);
    assert_eq!(sample.pids, [4242, 4243]);
    let reading = sample.reading;
    assert_eq!(reading.tensor_percent, None);
    // 63 over two processes, in whole percents each.
    assert_eq!(reading.activity_percent(true), Some(62.0));
    assert_eq!(
        reading.nvlink_replays,
        Some(12),
        "one on each of twelve links"
    );
    assert_eq!(reading.nvlink_recoveries, Some(0));
    assert_eq!(played.found(600), []);
}

#[test]
fn an_uncorrectable_error_is_a_fault_and_its_row_waits_for_a_reset() {
    let expected = [
        FindingKind::EccUncorrected,
        FindingKind::Xid(48),
        FindingKind::RowRemapPending,
        FindingKind::Xid(63),
    ];
    let mut played = Played::new("xid_48");
    let found = played.found(20);
    assert_eq!(found.iter().map(|f| f.kind).collect::<Vec<_>>(), expected);
    let advice = [Advice::Fault, Advice::Fault, Advice::Drain, Advice::Drain];
    assert_eq!(
        found.iter().map(Finding::advice).collect::<Vec<_>>(),
        advice
    );
    assert_eq!(
        found[1].text,
        "Xid 48: uncorrectable (double bit) memory error"
    );
}

#[test]
fn each_xid_is_found_once_with_what_the_counters_say_beside_it() {
    use FindingKind::{EccUncorrected, LinkReplay, RowRemapFailed, RowRemapPending, Xid};
    let replay = |repeated| LinkReplay { repeated };
    let expected = [
        ("xid_63", vec![RowRemapPending, Xid(63)]),
        ("xid_64", vec![RowRemapFailed, Xid(64)]),
        ("xid_74", vec![replay(false), replay(true), Xid(74)]),
        (
            "xid_94",
            vec![EccUncorrected, RowRemapPending, Xid(94), Xid(45)],
        ),
        ("xid_95", vec![EccUncorrected, Xid(95)]),
    ];
    for (scenario, kinds) in expected {
        assert_eq!(Played::new(scenario).kinds(20), kinds, "{scenario}");
    }
}

#[test]
fn a_device_that_falls_off_the_bus_is_lost_once_and_its_xid_is_its_own() {
    let mut played = Played::new("xid_79");
    let found: Vec<_> = (0..20).flat_map(|_| played.round().1).collect();
    let kinds: Vec<_> = found.iter().map(|f| (f.device, f.finding.kind)).collect();
    assert_eq!(
        kinds,
        [(0, FindingKind::DeviceLost), (0, FindingKind::Xid(79))]
    );
}

#[test]
fn a_device_lost_in_the_middle_of_a_query_takes_no_other_with_it() {
    let mut played = Played::new("gpu_lost");
    let found: Vec<_> = (0..20).flat_map(|_| played.round().1).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].device, found[0].finding.kind),
        (1, FindingKind::DeviceLost)
    );
    assert_eq!(
        found[0].finding.text,
        "device fell off the bus or has otherwise become inacessible"
    );
    let (samples, _) = played.round();
    assert_eq!(samples[0].reading.activity_percent(true), Some(44.25));
    assert!(samples[1].reading.lost.is_some());
}

#[test]
fn corrected_errors_that_keep_coming_drain_the_slot_before_it_fails() {
    let mut played = Played::new("ecc_rising");
    let found = played.found(60);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].kind, FindingKind::EccCorrectedRising);
    assert_eq!(found[0].advice(), Advice::Drain);
    assert_eq!(
        found[0].text,
        "corrected memory errors: 22 more in 11 steps within 10 s"
    );
}

#[test]
fn heat_again_and_again_drains_the_slot() {
    let mut played = Played::new("throttle");
    let (samples, _) = played.round();
    assert_eq!(samples[0].reading.slowdown, Some(Slowdown::HardwareThermal));
    let mut again = Played::new("throttle");
    let found = again.found(10);
    let advice: Vec<_> = found.iter().map(Finding::advice).collect();
    assert_eq!(
        advice,
        [Advice::Note, Advice::Note, Advice::Note, Advice::Drain]
    );
    assert_eq!(found[0].text, "hardware thermal slowdown at 91 degrees");
}

#[test]
fn without_a_library_or_a_scenario_there_is_no_accelerator() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("libnvidia-ml.so.1");
    assert!(NvmlAccelerators::open(missing.as_os_str()).is_err());
    assert!(
        detect_accelerators(missing.as_os_str())
            .devices()
            .is_empty()
    );
    let (dir, library) = stage("hopper_idle");
    std::fs::remove_file(dir.path().join("scenario.toml")).unwrap();
    let refused = NvmlAccelerators::open(library.as_os_str()).err();
    assert_eq!(refused.unwrap(), "NVML: NVIDIA driver is not loaded");
}
