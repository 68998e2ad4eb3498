//! Engines of the user's on the trainer's slots: they give their memory back while the ranks train. A program
//! plays vLLM and SGLang, for the real ones need a device for that.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_tests::{Daemon, JobFile, bin, engine_process, roles};
use serde_json::Value;

/// What the played engine writes when its memory is given back, when the weights' memory is back, and when
/// all of it is.
const ASLEEP: &str = "fake-engine: gave back weights kv_cache";
const STIRS: &str = "fake-engine: took weights";
const AWAKE: &str = "fake-engine: took kv_cache";

/// The job with engines of this make on the ranks' slots; more arguments are given to them.
fn job(mode: &str, dialect: &str, arguments: &[&str]) -> JobFile {
    let (model, sleeps) = match dialect {
        "sglang" => ("--model-path", "--enable-memory-saver"),
        _ => ("--model", "--enable-sleep-mode"),
    };
    let argv = ["{env:FAKE_ENGINE}", "--dialect", dialect, model, "{model}"];
    let listens = ["--host", "{bind}", "--port", "{port}", "--enable-scale-out"];
    let argv = argv.iter().chain(&listens).chain([&sleeps]);
    let argv: Vec<toml::Value> = argv.chain(arguments).map(|text| (*text).into()).collect();
    JobFile::of_fixture("jobs/engines-fake.toml")
        .set("job", "mode", mode)
        .set("job", "steps", 400)
        .set("trainer", "hybrid", true)
        // One engine of its own, one request at a time: it alone does not generate half of a batch while
        // the ranks train.
        .set("rollout", "replicas", 1)
        .set("rollout.command", "kind", dialect)
        .set("rollout.command", "argv", argv)
        .set("rollout.command", "requests", 1)
}

fn start(job: &JobFile) -> Daemon {
    let engine = bin("fake-engine");
    Daemon::start_with(job, &[("FAKE_ENGINE", &engine.to_string_lossy())])
}

/// All that a hybrid wrote, over all its lives.
fn log(daemon: &Daemon, index: usize) -> String {
    let path = format!("logs/hybrid-{index}.log");
    std::fs::read_to_string(daemon.state_dir().join(path)).unwrap_or_default()
}

/// What its engine wrote about its memory, oldest first.
fn record(daemon: &Daemon, index: usize) -> Vec<String> {
    let marks = [ASLEEP, STIRS, AWAKE];
    let of_memory = |line: &&str| marks.iter().any(|mark| line.starts_with(mark));
    let log = log(daemon, index);
    let lines = log.lines().filter(of_memory);
    lines.map(str::to_owned).collect()
}

fn count(record: &[String], mark: &str) -> usize {
    record.iter().filter(|line| line.starts_with(mark)).count()
}

fn pids(status: &Value, role: &str) -> Vec<u64> {
    let of = roles(status, role);
    of.iter().map(|r| r["pid"].as_u64().unwrap()).collect()
}

fn incident(daemon: &mut Daemon, role: &str) -> Value {
    let is_it = |s: &Value| {
        let all = s["incidents"].as_array().unwrap();
        let of = |i: &&Value| i["role"] == role && i["outcome"] == "recovered";
        all.iter().find(of).cloned()
    };
    let status = daemon.until("the incident", |s| is_it(s).is_some());
    is_it(&status).unwrap()
}

/// Steps are committed while the engines give their memory back and take it again, in order, and nobody is
/// at fault.
fn trains_and_sleeps_in_turn(mode: &str, dialect: &str) {
    let mut daemon = start(&job(mode, dialect, &[]));
    let status = daemon.until("tokens of an engine on a trainer's slot", |s| {
        let generated = |r: &&Value| r["tokens_total"].as_u64() > Some(0);
        s["step"].as_u64() >= Some(4) && roles(s, "hybrid").iter().any(generated)
    });
    assert_eq!(status["incidents"].as_array().unwrap().len(), 0, "{status}");
    for index in 0..2 {
        let record = record(&daemon, index);
        assert!(count(&record, ASLEEP) >= 2, "{record:#?}");
        let turns = [ASLEEP, STIRS, AWAKE];
        for (line, mark) in record.iter().zip(turns.iter().cycle()) {
            assert!(line.starts_with(mark), "{mark}: {record:#?}");
        }
    }
    daemon.ctl(&["stop"]);
    daemon.finish();
    assert_eq!(daemon.processes(), []);
}

#[test]
fn vllm_on_the_trainers_slots_sleeps_while_a_semi_sync_job_trains() {
    trains_and_sleeps_in_turn("semi-sync", "vllm");
}

#[test]
fn sglang_on_the_trainers_slots_sleeps_while_a_semi_sync_job_trains() {
    trains_and_sleeps_in_turn("semi-sync", "sglang");
}

#[test]
fn vllm_on_the_trainers_slots_sleeps_while_a_sync_job_trains() {
    trains_and_sleeps_in_turn("sync", "vllm");
}

#[test]
fn sglang_on_the_trainers_slots_sleeps_while_a_sync_job_trains() {
    trains_and_sleeps_in_turn("sync", "sglang");
}

#[test]
fn an_engine_that_keeps_its_memory_is_only_paused_while_the_job_trains() {
    let job = job("semi-sync", "vllm", &[]).set("rollout.command", "hybrid", "pause");
    let mut daemon = start(&job);
    let status = daemon.until("tokens of an engine on a trainer's slot", |s| {
        let generated = |r: &&Value| r["tokens_total"].as_u64() > Some(0);
        s["step"].as_u64() >= Some(3) && roles(s, "hybrid").iter().any(generated)
    });
    assert_eq!(status["incidents"].as_array().unwrap().len(), 0, "{status}");
    assert_eq!(record(&daemon, 0), [""; 0]);
}

/// The engine of hybrid 0 is killed at the moment after this was written so often; only it is restarted.
fn dies_after(mark: &str, dialect: &str, title: &str) {
    let mut daemon = start(&job("semi-sync", dialect, &[]));
    let before = daemon.until_step(2);
    let seen = count(&record(&daemon, 0), mark);
    daemon.wait_for(mark, |d| count(&record(d, 0), mark) > seen);
    let victim = engine_process(&daemon, "hybrid", 0, title).expect("the engine lives");
    kill(Pid::from_raw(victim), Signal::SIGKILL).unwrap();
    let incident = incident(&mut daemon, "hybrid");
    assert_eq!(incident["index"], 0, "{incident}");
    let plan = incident["plan"].as_str().unwrap();
    assert!(plan.starts_with("restart hybrid-0 only"), "{incident}");
    let step = daemon.status()["step"].as_u64().unwrap();
    let after = daemon.until_step(step + 2);
    assert_ne!(pids(&before, "hybrid")[0], pids(&after, "hybrid")[0]);
    assert_eq!(pids(&before, "hybrid")[1], pids(&after, "hybrid")[1]);
    for kept in ["trainer", "rollout", "agent"] {
        assert_eq!(pids(&before, kept), pids(&after, kept), "{kept}");
    }
}

#[test]
fn a_vllm_that_dies_asleep_is_alone_restarted() {
    dies_after(ASLEEP, "vllm", "VLLM::Worker");
}

#[test]
fn a_sglang_that_dies_while_it_wakes_is_alone_restarted() {
    dies_after(STIRS, "sglang", "sglang::scheduler");
}

#[test]
fn a_wake_up_that_hangs_is_given_up_by_the_rule_and_only_that_engine_is_restarted() {
    // Two wake-ups, of weights and of keys and values, bring the first turn; the next one hangs.
    let mut job = job("semi-sync", "vllm", &["--quirk", "hang-wake=2"]);
    job = job.set("detect.context_switch", "window_s", 4);
    let mut daemon = start(&job);
    let incident = incident(&mut daemon, "hybrid");
    assert_eq!(incident["rule"], "context switch", "{incident}");
    let reason = incident["reason"].as_str().unwrap();
    // Its rank's next turn may have come by then: that word waits for the answer to the one before.
    let said = ["told to change its context", "no answer for"];
    assert!(said.iter().all(|said| reason.contains(said)), "{reason}");
    let step = daemon.status()["step"].as_u64().unwrap();
    daemon.until_step(step + 1);
}

#[test]
fn weights_that_a_wake_up_spoils_are_loaded_again_before_anybody_gets_a_token() {
    let mut daemon = start(&job("semi-sync", "sglang", &["--quirk", "forgetful-wake"]));
    let status = daemon.until("tokens of an engine on a trainer's slot", |s| {
        let generated = |r: &&Value| r["tokens_total"].as_u64() > Some(0);
        s["step"].as_u64() >= Some(2) && roles(s, "hybrid").iter().any(generated)
    });
    assert_eq!(status["incidents"].as_array().unwrap().len(), 0, "{status}");
    let logs = log(&daemon, 0);
    assert!(logs.contains("the engine does not go on"), "{logs}");
    assert!(logs.contains("attempt=2"), "{logs}");
}
