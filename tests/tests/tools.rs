//! Tools that really die. An infrastructure failure is never a sample: nothing that is trained on has
//! anything but what the tool says when it is left alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_tests::{Daemon, JobFile, assert_consumed_once, bin, roles};
use robustd::store::Store;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Trajectories of a step of the small job.
const PER_STEP: usize = 16;

/// A job that goes on until it is stopped; a call is made twice.
fn endless() -> JobFile {
    JobFile::small()
        .set("job", "steps", 400)
        .set("agent.tool", "retries", 1)
        .set("agent.tool", "retry_ms", 50)
}

fn given_back(status: &Value) -> u64 {
    status["trajectories_given_back"].as_u64().unwrap_or(0)
}

fn tool_failures(status: &Value) -> u64 {
    let of = |r: &Value| r["tool_failures"].as_u64().unwrap_or(0);
    roles(status, "agent").into_iter().map(of).sum()
}

/// What the tool makes of an expression when nothing befalls it.
fn calculated(expression: &str) -> String {
    let mut tool = Command::new(bin("robust-calc"))
        .args(["256", "60"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = tool.stdin.take().unwrap();
    input.write_all(expression.as_bytes()).unwrap();
    drop(input);
    let out = tool.wait_with_output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    match out.status.success() {
        true => said(&out.stdout),
        false => format!("error: {}", said(&out.stderr)),
    }
}

/// Looks at everything that was trained on; how many calls of a tool that had.
fn check_what_was_trained_on(state: &Path, steps: u64) -> usize {
    assert_consumed_once(state, steps, PER_STEP);
    let (store, _) = Store::open(state).expect("the daemon has ended");
    let mut results: BTreeMap<String, String> = BTreeMap::new();
    let mut calls = 0;
    for step in 1..=steps {
        for id in store.consumed_by(robust_shared::ids::Step(step)).unwrap() {
            let trained = store.trajectory(id).unwrap().expect("it is stored");
            assert!(trained.finished.is_some(), "{id} has no reward");
            for turn in trained.turns.iter().filter(|t| !t.tool_call.is_empty()) {
                let result = results
                    .entry(turn.tool_call.clone())
                    .or_insert_with(|| calculated(&turn.tool_call));
                assert_eq!(&turn.tool_result, result, "{id}: {}", turn.tool_call);
                calls += 1;
            }
        }
    }
    calls
}

/// Ends the job after a few more steps, and looks at all that it trained on.
fn end_well(mut daemon: Daemon, further: u64) {
    let step = daemon.status()["step"].as_u64().unwrap();
    daemon.until_step(step + further);
    assert!(daemon.ctl(&["stop"]).status.success());
    daemon.finish();
    let (store, _) = Store::open(&daemon.state_dir()).unwrap();
    let steps = store.steps().unwrap().len() as u64;
    drop(store);
    let calls = check_what_was_trained_on(&daemon.state_dir(), steps);
    assert!(calls > 0, "nothing that was trained on called a tool");
}

#[test]
fn a_worker_whose_tool_always_dies_gives_back_what_it_gets_and_is_restarted_in_the_end() {
    let job = endless().set("detect.agent_unable", "times", 3).set(
        "detect.agent_unable",
        "lasting_s",
        0.5,
    );
    let mut daemon = Daemon::start(&job);
    daemon.until_step(1);
    let strike = [
        "inject",
        "--kill-tool",
        "agent",
        "--index",
        "0",
        "--seconds",
        "3600",
    ];
    daemon.json(&strike);
    let of = |s: &Value| s["incidents"].as_array().unwrap().clone();
    let seen = daemon.until("the verdict on the worker", |s| {
        of(s).iter().any(|i| i["outcome"] == "recovered")
    });
    let [incident] = &of(&seen)[..] else {
        panic!("{}", seen["incidents"]);
    };
    assert_eq!(incident["rule"], "agent unable", "{incident}");
    let reason = incident["reason"].as_str().unwrap();
    assert!(
        reason.contains("the tool was killed by SIGKILL"),
        "{reason}"
    );
    assert!(given_back(&seen) >= 3, "{seen}");
    assert!(tool_failures(&seen) >= 2 * 3, "{seen}");
    let said = daemon.events("returned");
    assert_eq!(said.len() as u64, given_back(&daemon.status()));
    let shown = daemon.ctl(&["status"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("given back after"), "{shown}");
    end_well(daemon, 2);
}

/// The processes that a process started.
fn children(pid: u64) -> Vec<i32> {
    let path = |task: std::fs::DirEntry| task.path().join("children");
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(path(task)).ok());
    let pids = |list: String| -> Vec<i32> {
        list.split_whitespace()
            .filter_map(|pid| pid.parse().ok())
            .collect()
    };
    lists.flat_map(pids).collect()
}

#[test]
fn a_tool_that_somebody_kills_is_asked_again_and_nobody_is_restarted() {
    let mut daemon = Daemon::start(&endless());
    let status = daemon.until_step(1);
    let pids: Vec<u64> = roles(&status, "agent")
        .iter()
        .map(|r| r["pid"].as_u64().unwrap())
        .collect();
    // It answers so slowly that it is there to be killed.
    for index in ["0", "1"] {
        let strike = [
            "inject",
            "--hang-tool",
            "agent",
            "--index",
            index,
            "--seconds",
            "5",
        ];
        daemon.json(&strike);
    }
    let seen = daemon.until("failures of the tool", |s| {
        for tool in pids.iter().flat_map(|pid| children(*pid)) {
            // It may have ended since.
            let _ = kill(Pid::from_raw(tool), Signal::SIGKILL);
        }
        tool_failures(s) >= 3
    });
    assert_eq!(seen["incidents"].as_array().unwrap().len(), 0, "{seen}");
    end_well(daemon, 2);
}
