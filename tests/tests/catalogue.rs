//! Every drill of `fixtures/drills` on a real job, each a test of its own; those that may take minutes
//! only when asked for
//! (`cargo nextest run -p robust-tests --test catalogue --run-ignored all`). A drill that shows a rule is run
//! again without that rule, a minute and a half for all of them; `-E 'not test(without)'` leaves those out.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{bin, cache, fixture, processes_naming};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Runs the drill of that name; every expectation must be met, and nothing may be left.
fn passes(name: &str) {
    passes_on(&tempfile::tempdir().unwrap(), name, &[]);
}

/// The same in a folder of its own, with more in the environment.
fn passes_on(dir: &TempDir, name: &str, more: &[(&str, &Path)]) {
    let Run { out, json } = run(dir, name, &[], more);
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(json["held"], true, "{json:#}");
}

/// Runs the drill with a rule switched off: what it expects of the rule must not be met.
fn fails_without(name: &str, rule: &str) {
    fails_without_on(&tempfile::tempdir().unwrap(), name, rule, &[]);
}

fn fails_without_on(dir: &TempDir, name: &str, rule: &str, more: &[(&str, &Path)]) {
    let Run { out, json } = run(dir, name, &["--without", rule], more);
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    let expectation = format!("rule = \"{rule}\"");
    let all = json["series"][0]["expectations"].as_array();
    let verdict = all.unwrap().iter().find(|e| e["text"] == expectation);
    let held = verdict.unwrap_or_else(|| panic!("{name} does not expect `{expectation}`"));
    assert_eq!(held["held"], false, "{held}");
}

/// What a drill left.
struct Run {
    out: Output,
    json: Value,
}

fn run(dir: &TempDir, name: &str, args: &[&str], more: &[(&str, &Path)]) -> Run {
    let result = dir.path().join("result.json");
    let out = Command::new(bin("robustctl"))
        .arg("drill")
        .arg(fixture(&format!("drills/{name}.toml")))
        .args(args)
        .arg("--out")
        .arg(&result)
        .env("TMPDIR", dir.path())
        .env("ROBUST_CACHE", cache())
        .env("FAKE_ENGINE", bin("fake-engine"))
        .envs(more.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = std::fs::read(&result).unwrap_or_else(|e| panic!("{e}: {}", said(&out)));
    let json = serde_json::from_slice(&text).unwrap();
    assert_eq!(processes_naming(dir.path()), vec![], "processes were left");
    Run { out, json }
}

fn said(out: &Output) -> String {
    format!(
        "{}\n{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    )
}

/// A test for each drill, and the list of them. For a drill that shows what a rule is good for, another one:
/// with the rule switched off it must fail.
macro_rules! drills {
    ($($(#[$attribute:meta])* $test:ident = $name:literal $(, shows $rule:literal)?;)*) => {
        $(#[test] $(#[$attribute])* fn $test() { passes($name); })*
        const TESTED: &[&str] = &[$($name),*];
        /// Drills, and the rules that they show.
        const SHOWN: &[(&str, &str)] = &[$($(($name, $rule),)?)*];
        mod without_its_rule {
            $($(#[test] fn $test() { super::fails_without($name, $rule); })?)*
        }
    };
}

drills! {
    a_killed_trainer = "kill-trainer", shows "exit";
    a_killed_rollout = "kill-rollout";
    a_killed_agent = "kill-agent";
    a_hung_trainer = "hang-trainer", shows "trainer idle";
    a_hung_rollout = "hang-rollout", shows "rollout silent";
    a_hung_rollout_that_is_probed = "probed", shows "health probe";
    a_hung_agent = "hang-agent", shows "agent silent";
    a_node_that_starts_nothing = "no-processes", shows "spawn";
    a_program_that_is_never_up = "never-up", shows "attach overdue";
    a_link_that_does_not_come_back = "link-lost", shows "link lost";
    a_lost_slot = "lose-slot";
    a_rollouts_slot_for_the_trainer = "warm-standby";
    a_second_fault_in_a_step = "second-fault-in-step";
    a_restart_that_fails_twice = "restart-fails-twice";
    one_cause_again_and_again = "same-cause";
    two_causes_in_turns = "causes-in-turns";
    #[ignore = "takes minutes"] kills_at_random = "random-kills";
    #[ignore = "takes minutes; `make bench` runs it"] the_papers_experiment = "paper";
    #[ignore = "its own test says more: drill.rs"] both_policies = "quick";
    a_lost_node = "lose-node", shows "node lost";
    an_exit_code = "exit-code";
    an_exception = "exception-in-update", shows "exception";
    a_loss_that_is_no_number = "nan-loss", shows "numeric";
    a_slow_rollout = "slow-rollout";
    a_slow_rank = "slow-rank", shows "straggler";
    no_more_memory = "out-of-memory";
    corrupt_weights = "corrupt-weights";
    corrupt_weights_that_nobody_pulls = "corrupt-alone", shows "corruption";
    a_silent_network = "stall-network";
    a_pull_of_which_nothing_is_heard = "unheard-pull", shows "pull stall";
    a_cut_network = "cut-network";
    a_source_that_dies_in_a_pull = "source-dies-in-pull";
    a_trainer_that_dies_in_a_publish = "trainer-dies-in-publish";
    a_slot_that_is_not_taken_up_again = "stuck-switch", shows "context switch";
    an_engine_that_is_left_paused = "left-paused", shows "paused too long";
    a_tool_that_hangs = "tool-hangs", shows "phase overrun";
    a_tool_that_dies = "tool-dies";
    an_agent_that_ends_nothing = "unable-agent", shows "agent unable";
    a_full_disk = "disk-full";
    the_leaders_crash = "leader-crash";
    a_corrupt_checkpoint = "corrupt-checkpoint";
    a_configuration_error = "configuration-error";
    an_engine_whose_worker_is_killed = "kill-engine-child";
    an_engine_whose_leader_leaves_orphans = "engine-orphans";
    an_engine_that_hangs = "hang-engine";
    an_engine_that_is_killed_in_a_load = "kill-in-load";
    an_engine_that_lies_about_a_load = "lying-reload";
    a_prompt_that_kills_engines = "poison", shows "poison";
}

/// With the drivers' test library, which plays busy devices until it is told of an event.
const ON_DEVICES: &str = "hardware-event";
/// The rule that it shows.
const OF_DEVICES: &str = "hardware";

/// The test library and what it plays, in this folder.
fn devices(dir: &TempDir) -> PathBuf {
    let built = std::env::current_exe()
        .unwrap()
        .with_file_name("libnvml_fake.so");
    let library = dir.path().join("libnvidia-ml.so.1");
    std::fs::copy(built, &library).unwrap();
    let scenario = fixture("nvml/hopper_busy.toml");
    std::fs::copy(scenario, dir.path().join("scenario.toml")).unwrap();
    library
}

#[test]
fn a_device_that_fails() {
    let dir = tempfile::tempdir().unwrap();
    let library = devices(&dir);
    passes_on(&dir, ON_DEVICES, &[("ROBUST_NVML_LIB", &library)]);
}

#[test]
fn a_device_that_fails_without_its_rule() {
    let dir = tempfile::tempdir().unwrap();
    let library = devices(&dir);
    let more: &[(&str, &Path)] = &[("ROBUST_NVML_LIB", &library)];
    fails_without_on(&dir, ON_DEVICES, OF_DEVICES, more);
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

#[test]
fn every_rule_is_shown_by_a_drill_that_expects_it_and_fails_without_it() {
    let out = Command::new(bin("robustctl"))
        .args(["rules", "--json", "--job"])
        .arg(fixture("jobs/test.toml"))
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", said(&out));
    let rules: Value = serde_json::from_slice(&out.stdout).unwrap();
    let drills = listed();
    let shown = || SHOWN.iter().copied().chain([(ON_DEVICES, OF_DEVICES)]);
    for rule in rules["rules"].as_array().unwrap() {
        let rule = rule["name"].as_str().unwrap();
        let by = shown().find(|(_, shown)| *shown == rule);
        let (name, _) = by.unwrap_or_else(|| panic!("no drill shows the rule `{rule}`"));
        let drill = drills.iter().find(|d| d["name"] == name).unwrap();
        let expects = drill["expect"].as_array().unwrap();
        assert!(
            expects.contains(&format!("rule = \"{rule}\"").into()),
            "{name} does not expect the rule `{rule}`"
        );
    }
}

/// Rows of the fault tables and the faults that can be injected.
const ROWS: [&str; 62] = [
    "detect exit",
    "detect spawn",
    "detect attach overdue",
    "detect link lost",
    "detect agent silent",
    "detect pull stall",
    "detect context switch",
    "detect paused too long",
    "detect agent unable",
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
    "restart same cause",
    "restart another cause",
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
    "fault pause-engine",
    "fault corrupt-checkpoint",
    "fault lose-slot",
    "fault lose-node",
    "fault disk-full",
    "fault no-processes",
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
