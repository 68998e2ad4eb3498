//! Engines of the user's behind shims: a program that plays vLLM and SGLang, really killed and stopped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_tests::{Daemon, JobFile, bin, engine_process, roles};
use serde_json::Value;
use std::path::Path;

/// The job with engines of this make; more arguments are given to them.
fn job(dialect: &str, arguments: &[&str]) -> JobFile {
    let model = match dialect {
        "sglang" => "--model-path",
        _ => "--model",
    };
    let argv = ["{env:FAKE_ENGINE}", "--dialect", dialect, model, "{model}"];
    let listens = ["--host", "{bind}", "--port", "{port}", "--enable-scale-out"];
    let argv = argv.iter().chain(&listens).chain(arguments);
    let argv: Vec<toml::Value> = argv.map(|text| (*text).into()).collect();
    JobFile::of_fixture("jobs/engines-fake.toml")
        .set("job", "steps", 400)
        .set("rollout.command", "kind", dialect)
        .set("rollout.command", "argv", argv)
}

fn start(job: &JobFile) -> Daemon {
    let engine = bin("fake-engine");
    Daemon::start_with(job, &[("FAKE_ENGINE", &engine.to_string_lossy())])
}

fn the_process(daemon: &Daemon, index: usize, title: &str) -> i32 {
    daemon.wait_for(title, |d| {
        engine_process(d, "rollout", index, title).is_some()
    });
    engine_process(daemon, "rollout", index, title).unwrap()
}

fn incident(daemon: &mut Daemon, done: impl Fn(&Value) -> bool) -> Value {
    let is_it = |s: &Value| {
        s["incidents"]
            .as_array()
            .unwrap()
            .iter()
            .find(|i| done(i))
            .cloned()
    };
    let status = daemon.until("the incident", |s| is_it(s).is_some());
    is_it(&status).unwrap()
}

fn pid(status: &Value, role: &str, index: usize) -> u64 {
    roles(status, role)[index]["pid"].as_u64().unwrap()
}

/// The named process dies; only its instance is restarted, for the reason that names it.
fn dies(dialect: &str, title: &str) {
    let worker = match dialect {
        "sglang" => "sglang::scheduler",
        _ => "VLLM::Worker",
    };
    let mut daemon = start(&job(dialect, &[]));
    let before = daemon.until_step(2);
    let victim = the_process(&daemon, 0, title);
    kill(Pid::from_raw(victim), Signal::SIGKILL).unwrap();
    let incident = incident(&mut daemon, |i| i["outcome"] == "recovered");
    let reason = incident["reason"].as_str().unwrap();
    let name = if title == "--dialect" {
        "fake-engine"
    } else {
        title
    };
    assert!(
        reason.contains(&format!("{name} (pid {victim}) ended")),
        "{reason}"
    );
    assert_eq!(
        (&incident["role"], &incident["index"]),
        (&"rollout".into(), &0.into())
    );
    let step = daemon.status()["step"].as_u64().unwrap();
    let after = daemon.until_step(step + 2);
    assert_ne!(pid(&before, "rollout", 0), pid(&after, "rollout", 0));
    assert_eq!(pid(&before, "rollout", 1), pid(&after, "rollout", 1));
    assert_eq!(pid(&before, "trainer", 0), pid(&after, "trainer", 0));
    assert_eq!(pid(&before, "agent", 0), pid(&after, "agent", 0));
    // One more, whose instance has no next life to sweep after it.
    let victim = the_process(&daemon, 0, title);
    let worker = the_process(&daemon, 0, worker);
    let shared = shared_memory_of(worker);
    assert!(!shared.is_empty(), "{worker} shares memory");
    kill(Pid::from_raw(victim), Signal::SIGKILL).unwrap();
    daemon.ctl(&["stop"]);
    daemon.finish();
    assert_eq!(daemon.processes(), []);
    let left: Vec<&String> = shared
        .iter()
        .filter(|path| Path::new(path).exists())
        .collect();
    assert!(left.is_empty(), "{left:?} stay in shared memory");
}

/// The files in shared memory that a process maps, its weights excepted.
fn shared_memory_of(pid: i32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let shared = paths.filter(|path| path.starts_with("/dev/shm/") && !path.contains("/weights/"));
    shared.map(str::to_owned).collect()
}

#[test]
fn a_killed_worker_of_vllm_is_its_instances_fault_and_is_named() {
    dies("vllm", "VLLM::Worker");
}

#[test]
fn a_killed_leader_of_vllm_leaves_nobody_behind() {
    // The leader has no title of its own; its children would live on.
    dies("vllm", "--dialect");
}

#[test]
fn a_killed_scheduler_of_sglang_is_its_instances_fault_and_is_named() {
    dies("sglang", "sglang::scheduler");
}

#[test]
fn an_engine_that_stands_still_is_restarted_though_its_health_route_says_200() {
    let mut daemon = start(&job("vllm", &[]));
    daemon.until_step(2);
    let worker = the_process(&daemon, 0, "VLLM::Worker");
    kill(Pid::from_raw(worker), Signal::SIGSTOP).unwrap();
    let incident = incident(&mut daemon, |i| i["outcome"] == "recovered");
    assert_eq!(
        (&incident["role"], &incident["index"]),
        (&"rollout".into(), &0.into())
    );
    let rule = incident["rule"].as_str().unwrap();
    // The last where it stood still while it loaded weights, and its shim gave it up.
    let rules = ["health probe", "rollout silent", "exit"];
    assert!(rules.contains(&rule), "{incident}");
}

#[test]
fn an_engine_that_says_at_its_start_what_is_wrong_fails_the_job_with_its_words() {
    let mut daemon = start(&job("vllm", &["--quirk", "no-such-quirk"]));
    assert_ne!(daemon.finish(), 0);
    let log = std::fs::read_to_string(daemon.stderr()).unwrap();
    assert!(
        log.contains("the engine never came up"),
        "{}",
        daemon.logs()
    );
    assert!(log.contains("failed in start-up"), "{}", daemon.logs());
}

#[test]
fn an_engine_without_the_route_that_is_needed_fails_the_job_and_says_the_flag() {
    let argv = ["{env:FAKE_ENGINE}", "--dialect", "vllm", "--port", "{port}"];
    let argv: Vec<toml::Value> = argv.into_iter().map(Into::into).collect();
    let mut daemon = start(&job("vllm", &[]).set("rollout.command", "argv", argv));
    assert_ne!(daemon.finish(), 0);
    let log = std::fs::read_to_string(daemon.stderr()).unwrap();
    assert!(log.contains("--enable-scale-out"), "{}", daemon.logs());
}

#[test]
fn an_engine_outlives_its_daemon_and_is_adopted_by_the_next() {
    let mut daemon = start(&job("vllm", &[]));
    let before = daemon.until_step(2);
    daemon.kill_daemon();
    daemon.launch();
    let step = before["step"].as_u64().unwrap();
    let after = daemon.until_step(step + 2);
    assert_eq!(pid(&before, "rollout", 0), pid(&after, "rollout", 0));
    assert_eq!(pid(&before, "rollout", 1), pid(&after, "rollout", 1));
    assert_eq!(
        after["incidents"],
        serde_json::json!([]),
        "{}",
        daemon.logs()
    );
}
