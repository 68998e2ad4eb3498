//! A look inside of roles, and whether they answer, while a real job on two nodes trains.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_tests::{Cluster, JobFile, roles};
use serde_json::Value;
use std::time::Duration;

const FULL: &[(&str, i64)] = &[("train", 1), ("rollout", 1), ("agent", 1)];
/// A debugger's bound, and what a busy machine adds until its end is seen.
const STOP_US: u64 = 2_000_000 + 2_000_000;

/// A rank, a rollout and an agent each on `a` (the leader) and on `b`, and rules that wait longer than a test holds one.
fn job() -> JobFile {
    let job = JobFile::small()
        .set("job", "steps", 1000)
        .set("rollout", "replicas", 2)
        .nodes(&[("a", FULL), ("b", FULL)]);
    let rules = ["rollout_silent", "agent_silent", "trainer_idle"];
    rules.into_iter().fold(job, |job, rule| {
        job.set(&format!("detect.{rule}"), "window_s", 300.0)
    })
}

fn is_whole(status: &Value) -> bool {
    let all = status["roles"].as_array().unwrap();
    let rollouts = roles(status, "rollout");
    status["step"].as_u64() >= Some(2)
        && all.iter().all(|r| r["state"] == "running")
        && rollouts.iter().all(|r| r["admitted"] == true)
}

fn name(of: &Value) -> String {
    format!("{}-{}", of["role"].as_str().unwrap(), of["index"])
}

/// Each instance has its own process, with threads, and nothing stopped it.
fn assert_seen(found: &Value, status: &Value) {
    let (found, roles) = (
        found.as_array().unwrap(),
        status["roles"].as_array().unwrap(),
    );
    assert_eq!(found.len(), roles.len(), "{found:?}");
    for (part, role) in found.iter().zip(roles) {
        assert_eq!((name(part), &part["node"]), (name(role), &role["node"]));
        assert_eq!(part["error"], "", "{part}");
        let process = &part["processes"][0];
        assert_eq!(process["pid"], role["pid"], "{part}");
        assert!(!process["state"].as_str().unwrap().is_empty(), "{part}");
        let threads = process["threads"].as_array().unwrap();
        assert!(!threads.is_empty(), "{part}");
        assert!(
            threads.iter().all(|t| t["tid"].as_u64() > Some(0)),
            "{part}"
        );
        assert!(process["over_us"].as_u64() > Some(500_000), "{part}");
        assert_eq!(process["stopped_us"], 0, "{part}");
    }
}

#[test]
fn roles_on_every_node_are_looked_into_and_asked_while_the_job_goes_on() {
    let mut cluster = Cluster::start(&job());
    cluster.join("b", &[]);
    let before = cluster.leader.until("the second step", is_whole);
    assert_seen(&cluster.leader.json(&["inspect"]), &before);
    let one = cluster.leader.json(&["inspect", "agent-1"]);
    assert_eq!(one.as_array().unwrap().len(), 1, "{one}");
    let none = cluster.leader.ctl(&["inspect", "agent-7"]);
    assert_eq!(none.status.code(), Some(4));
    // An engine that takes a version up is busy for a moment.
    let all = |answers: &Value| {
        let parts = answers.as_array().unwrap();
        let of = |p: &Value| p["probes"].as_array().unwrap().clone();
        let whole = |p: &Value| of(p).len() == if p["role"] == "rollout" { 2 } else { 1 };
        parts
            .iter()
            .all(|p| whole(p) && of(p).iter().all(|a| a["ok"] == true))
    };
    cluster.leader.wait_for("everybody to answer", |leader| {
        let probed = leader.ctl(&["probe", "--json"]);
        probed.status.success() && all(&serde_json::from_slice(&probed.stdout).unwrap())
    });

    // One that is stopped answers not, which is said in its time, and inside is seen why.
    let stopped = roles(&before, "rollout")
        .into_iter()
        .find(|r| r["node"] == "b")
        .expect("a rollout on b");
    let (whom, pid) = (name(stopped), stopped["pid"].as_u64().unwrap());
    let process = Pid::from_raw(i32::try_from(pid).unwrap());
    kill(process, Signal::SIGSTOP).unwrap();
    let probed = cluster.leader.ctl(&["probe", &whom, "--json"]);
    let found = cluster.leader.json(&["inspect", &whom]);
    kill(process, Signal::SIGCONT).unwrap();
    assert_eq!(probed.status.code(), Some(1));
    let answers: Value = serde_json::from_slice(&probed.stdout).unwrap();
    let link = &answers[0]["probes"][0];
    assert_eq!(link["answer"], "it did not answer within 5s", "{answers}");
    let process = &found[0]["processes"][0];
    assert_eq!(
        (&process["state"], &process["cpu_us"]),
        (&"T".into(), &0.into())
    );
    let notes = process["notes"].to_string();
    assert!(notes.contains("SIGCONT lets it go on"), "{notes}");

    // A debugger is an operator's to ask for, stops nothing for long, and is in the audit log.
    let began = std::time::Instant::now();
    let found = cluster
        .leader
        .json(&["inspect", "trainer", "--stacks", "native"]);
    assert!(began.elapsed() < Duration::from_secs(60));
    for part in found.as_array().unwrap() {
        assert_eq!(part["error"], "", "{part}");
        let process = &part["processes"][0];
        assert!(process["stopped_us"].as_u64() <= Some(STOP_US), "{part}");
    }
    let asked = cluster.leader.ctl(&["audit"]);
    let asked = String::from_utf8_lossy(&asked.stdout).into_owned();
    let logged = |line: &str| line.contains("inspect") && line.contains("native");
    assert!(asked.lines().any(logged), "{asked}");

    // Nobody was taken for hung by that, and all goes on.
    let step = cluster.leader.status()["step"].as_u64().unwrap();
    let after = cluster.leader.until_step(step + 1);
    assert_eq!(after["incidents"].as_array().unwrap().len(), 0, "{after}");
    assert!(cluster.leader.ctl(&["stop"]).status.success());
    cluster.leader.finish();
}
