//! Every drill of `fixtures/drills` on a real job, each a test of its own; those that may take minutes
//! only when asked for
//! (`cargo nextest run -p robust-tests --test catalogue --run-ignored all`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{bin, cache, fixture, processes_naming};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Runs the drill of that name; every expectation must be met, and nothing may be left.
fn passes(name: &str) {
    passes_on(&tempfile::tempdir().unwrap(), name, &[]);
}

/// The same in a folder of its own, with more in the environment.
fn passes_on(dir: &TempDir, name: &str, more: &[(&str, &Path)]) {
    let result = dir.path().join("result.json");
    let out = Command::new(bin("robustctl"))
        .arg("drill")
        .arg(fixture(&format!("drills/{name}.toml")))
        .arg("--out")
        .arg(&result)
        .env("TMPDIR", dir.path())
        .env("ROBUST_CACHE", cache())
        .env("FAKE_ENGINE", bin("fake-engine"))
        .envs(more.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = format!(
        "{}\n{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(out.status.success(), "{said}");
    let json: Value = serde_json::from_slice(&std::fs::read(&result).unwrap()).unwrap();
    assert_eq!(json["held"], true, "{json:#}");
    assert_eq!(processes_naming(dir.path()), vec![], "processes were left");
}

/// A test for each drill, and the list of them.
macro_rules! drills {
    ($($(#[$attribute:meta])* $test:ident = $name:literal;)*) => {
        $(#[test] $(#[$attribute])* fn $test() { passes($name); })*
        const TESTED: &[&str] = &[$($name),*];
    };
}

drills! {
    a_killed_trainer = "kill-trainer";
    a_killed_rollout = "kill-rollout";
    a_killed_agent = "kill-agent";
    a_hung_trainer = "hang-trainer";
    a_hung_rollout = "hang-rollout";
    a_lost_slot = "lose-slot";
    a_rollouts_slot_for_the_trainer = "warm-standby";
    a_second_fault_in_a_step = "second-fault-in-step";
    a_restart_that_fails_twice = "restart-fails-twice";
    #[ignore = "takes minutes"] kills_at_random = "random-kills";
    #[ignore = "takes minutes; `make bench` runs it"] the_papers_experiment = "paper";
    #[ignore = "its own test says more: drill.rs"] both_policies = "quick";
    a_lost_node = "lose-node";
    an_exit_code = "exit-code";
    an_exception = "exception-in-update";
    a_loss_that_is_no_number = "nan-loss";
    a_slow_rollout = "slow-rollout";
    no_more_memory = "out-of-memory";
    corrupt_weights = "corrupt-weights";
    a_silent_network = "stall-network";
    a_cut_network = "cut-network";
    a_source_that_dies_in_a_pull = "source-dies-in-pull";
    a_trainer_that_dies_in_a_publish = "trainer-dies-in-publish";
    a_tool_that_hangs = "tool-hangs";
    a_tool_that_dies = "tool-dies";
    a_full_disk = "disk-full";
    the_leaders_crash = "leader-crash";
    a_corrupt_checkpoint = "corrupt-checkpoint";
    a_configuration_error = "configuration-error";
    an_engine_whose_worker_is_killed = "kill-engine-child";
    an_engine_whose_leader_leaves_orphans = "engine-orphans";
    an_engine_that_hangs = "hang-engine";
    an_engine_that_is_killed_in_a_load = "kill-in-load";
    an_engine_that_lies_about_a_load = "lying-reload";
    a_prompt_that_kills_engines = "poison";
}

/// With the drivers' test library, which plays busy devices until it is told of an event.
const ON_DEVICES: &str = "hardware-event";

#[test]
fn a_device_that_fails() {
    let dir = tempfile::tempdir().unwrap();
    let built = std::env::current_exe()
        .unwrap()
        .with_file_name("libnvml_fake.so");
    let library = dir.path().join("libnvidia-ml.so.1");
    std::fs::copy(built, &library).unwrap();
    let scenario = fixture("nvml/hopper_busy.toml");
    std::fs::copy(scenario, dir.path().join("scenario.toml")).unwrap();
    passes_on(&dir, ON_DEVICES, &[("ROBUST_NVML_LIB", &library)]);
}

/// The catalogue as `robustctl drill --list` shows it.
fn listed() -> Vec<Value> {
    let out = Command::new(bin("robustctl"))
        .args(["drill", "--list", "--json"])
        .arg(fixture("drills"))
        .output()
        .unwrap();
    assert!(out.status.success());
    serde_json::from_slice(&out.stdout).unwrap()
}

#[test]
fn every_drill_of_the_catalogue_can_be_run_and_has_a_test() {
    for drill in listed() {
        let name = drill["name"].as_str().unwrap();
        assert!(drill["refused"].is_null(), "{drill:#}");
        let tested = TESTED.contains(&name) || name == ON_DEVICES;
        assert!(tested, "{name} has no test");
        let first = drill["about"].as_str().unwrap_or_default();
        assert!(!first.is_empty(), "{name} does not say what it is for");
    }
}

/// Rows of the design's tables and the faults that can be injected.
const ROWS: [&str; 50] = [
    "detect exit",
    "detect node lost",
    "detect trainer idle",
    "detect rollout silent",
    "detect health probe",
    "detect phase overrun",
    "detect straggler",
    "detect hardware",
    "detect numeric",
    "detect corruption",
    "detect verified load",
    "detect poison",
    "never a sample",
    "restart role",
    "restart trainer",
    "restart rollout",
    "restart task policy",
    "restart first iteration",
    "restart second fault in a step",
    "restart failed twice",
    "restart budget",
    "reconnect relay",
    "reconnect source",
    "reconnect digest",
    "reconnect trainer dies",
    "reconnect second buffer",
    "invariant I-9",
    "fault kill",
    "fault exit",
    "fault hang",
    "fault slow",
    "fault oom",
    "fault exception",
    "fault nan",
    "fault corrupt-weights",
    "fault stall-network",
    "fault cut-network",
    "fault hang-tool",
    "fault kill-tool",
    "fault kill-engine-child",
    "fault kill-engine-leader",
    "fault hang-engine",
    "fault corrupt-checkpoint",
    "fault lose-slot",
    "fault lose-node",
    "fault disk-full",
    "fault hardware",
    "fault leader-crash",
    "restart configuration",
    "restart standby",
];
#[test]
fn the_catalogue_has_a_drill_for_every_row_of_the_designs_tables() {
    let drills = listed();
    let covered: Vec<&str> = drills
        .iter()
        .flat_map(|d| d["covers"].as_array().unwrap())
        .map(|row| row.as_str().unwrap())
        .collect();
    for row in covered.iter() {
        assert!(ROWS.contains(row), "{row:?} is no row");
    }
    for row in ROWS {
        assert!(covered.contains(&row), "{row:?} has no drill");
    }
}
