//! Slots lost and restored, roles scaled and updated, while a real job runs on one node.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Daemon, JobFile, assert_consumed_once, roles};
use serde_json::Value;

const PER_STEP: usize = 16;

fn job(steps: u64) -> JobFile {
    JobFile::small().set("job", "steps", steps as i64)
}

fn is_whole(status: &Value) -> bool {
    let all = status["roles"].as_array().unwrap();
    let rollouts = roles(status, "rollout");
    all.iter().all(|r| r["state"] == "running") && rollouts.iter().all(|r| r["admitted"] == true)
}

fn step(status: &Value) -> u64 {
    status["step"].as_u64().unwrap()
}

fn pids(status: &Value, role: &str) -> Vec<u64> {
    let of = roles(status, role);
    of.iter().map(|r| r["pid"].as_u64().unwrap()).collect()
}

fn slots(status: &Value, role: &str) -> Vec<String> {
    let of = roles(status, role);
    let slot = |r: &&Value| r["slot"].as_str().unwrap().to_owned();
    of.iter().map(slot).collect()
}

fn whole_at(daemon: &mut Daemon, at: u64) -> Value {
    daemon.until(&format!("everybody at step {at}"), |s| {
        step(s) >= at && is_whole(s)
    })
}

/// What `robustctl` prints; it succeeds.
fn said(daemon: &Daemon, args: &[&str]) -> String {
    let out = daemon.ctl(args);
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{args:?}: {err}\n{}", daemon.logs());
    String::from_utf8(out.stdout).unwrap()
}

/// Why `robustctl` did nothing, and its exit code.
fn refused(daemon: &Daemon, args: &[&str]) -> (i32, String) {
    let out = daemon.ctl(args);
    assert!(!out.status.success(), "{args:?} succeeded");
    let text = String::from_utf8(out.stderr).unwrap();
    (out.status.code().unwrap(), text)
}

fn no_incidents(status: &Value) {
    assert_eq!(status["incidents"].as_array().unwrap().len(), 0, "{status}");
}

fn finish(mut daemon: Daemon, steps: u64) {
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert_consumed_once(&daemon.state_dir(), steps, PER_STEP);
}

#[test]
fn a_rank_that_loses_its_slot_takes_a_rollouts_until_the_slot_is_back() {
    let steps = 14;
    let mut daemon = Daemon::start(&job(steps));
    let before = whole_at(&mut daemon, 2);
    let args = ["inject", "--lose-slot", "trainer", "--index", "1", "--wait"];
    let incident = daemon.json(&args)["incident"].clone();
    assert_eq!(incident["outcome"], "recovered", "{incident}");
    assert_eq!(incident["rule"], "exit", "{incident}");
    let plan = incident["plan"].as_str().unwrap();
    assert!(
        plan.ends_with(
            "; trainer-1 takes rollout-2's slot 2 of pool `rollout` on local, rollout-2's \
             requests go on elsewhere and it starts again when a slot is free"
        ),
        "{plan}"
    );
    let without = daemon.until_step(incident["step"].as_u64().unwrap() + 3);
    assert_eq!(slots(&without, "trainer"), ["train 0", "rollout 2"]);
    assert_eq!(slots(&without, "rollout"), ["rollout 0", "rollout 1", ""]);
    assert_eq!(roles(&without, "rollout")[2]["state"], "waiting");
    assert_eq!(
        pids(&without, "rollout")[..2],
        pids(&before, "rollout")[..2]
    );
    assert_eq!(pids(&without, "agent"), pids(&before, "agent"));
    let text = said(&daemon, &["restore-slot", "local", "train", "1"]);
    assert!(text.contains("is there again"), "{text}");
    let after = whole_at(&mut daemon, step(&without) + 2);
    assert_eq!(slots(&after, "rollout")[2], "train 1", "{after}");
    assert_eq!(pids(&after, "trainer"), pids(&without, "trainer"));
    let (code, why) = refused(&daemon, &["restore-slot", "local", "train", "1"]);
    assert!(why.contains("nothing to do"), "{code}: {why}");
    assert_eq!(after["incidents"].as_array().unwrap().len(), 1, "{after}");
    finish(daemon, steps);
}

#[test]
fn rollouts_come_and_go_while_the_job_runs() {
    let steps = 14;
    let pools: &[(&str, i64)] = &[("train", 2), ("rollout", 4), ("agent", 2)];
    let mut daemon = Daemon::start(&job(steps).nodes(&[("local", pools)]));
    let before = whole_at(&mut daemon, 1);
    let (_, why) = refused(&daemon, &["scale", "rollout", "6"]);
    assert!(why.contains("pool `rollout`"), "{why}");
    let (_, why) = refused(&daemon, &["scale", "rollout", "0"]);
    assert!(why.contains('1'), "{why}");
    let text = said(&daemon, &["scale", "rollout", "4"]);
    assert_eq!(text, "rollout goes from 3 to 4: now\n");
    let more = daemon.until("a fourth rollout that generates", |s| {
        let all = roles(s, "rollout");
        all.len() == 4 && is_whole(s) && all[3]["tokens_total"].as_u64() > Some(0)
    });
    assert_eq!(pids(&more, "rollout")[..3], pids(&before, "rollout")[..]);
    said(&daemon, &["scale", "rollout", "2"]);
    let fewer = daemon.until("two to be left", |s| roles(s, "rollout").len() == 2);
    let gone = pids(&more, "rollout")[2..].to_vec();
    let after = daemon.until("their processes to end", |s| {
        let left = alive(&gone);
        left == 0 && step(s) >= step(&fewer) + 2
    });
    assert_eq!(pids(&after, "rollout"), pids(&before, "rollout")[..2]);
    no_incidents(&after);
    finish(daemon, steps);
}

/// How many of these processes are there.
fn alive(pids: &[u64]) -> usize {
    let there = |pid: &&u64| std::path::Path::new(&format!("/proc/{pid}")).exists();
    pids.iter().filter(there).count()
}

#[test]
fn new_values_restart_the_trainer_alone_and_it_goes_on_from_its_weights() {
    let steps = 12;
    let mut daemon = Daemon::start(&job(steps));
    let before = whole_at(&mut daemon, 2);
    for (change, words) in [
        ("train.lr=-1", "train.lr"),
        ("train.lrr=0.1", "train.lr"),
        ("train.lr=fast", "train.lr"),
        ("rollout.max_running=2", "robustctl update rollout"),
    ] {
        let (code, why) = refused(&daemon, &["update", "trainer", "--set", change]);
        assert!(why.contains(words), "{change}: {code}: {why}");
    }
    assert!(!daemon.state_dir().join("job.1.json").exists());
    let text = said(&daemon, &["update", "trainer", "--set", "train.lr=0.0004"]);
    assert!(text.contains("revision 1 of the job"), "{text}");
    let after = daemon.until("the new gang to train", |s| {
        let new = pids(s, "trainer");
        let old = pids(&before, "trainer");
        is_whole(s) && new.iter().all(|pid| !old.contains(pid)) && step(s) >= step(&before) + 4
    });
    for kept in ["rollout", "agent"] {
        assert_eq!(pids(&after, kept), pids(&before, kept), "{kept}");
    }
    no_incidents(&after);
    let revision = daemon.state_dir().join("job.1.json");
    let value: Value = serde_json::from_slice(&std::fs::read(&revision).unwrap()).unwrap();
    assert_eq!(value["train"]["lr"].as_f64(), Some(0.0004));
    let named = revision.display().to_string();
    let of_gang = |line: &&(i32, String)| line.1.contains(" trainer ");
    let gang: Vec<_> = daemon.processes();
    let gang: Vec<_> = gang.iter().filter(of_gang).collect();
    assert_eq!(gang.len(), 2, "{gang:?}");
    assert!(gang.iter().all(|p| p.1.contains(&named)), "{gang:?}");
    let restored = daemon.events("restored");
    let last = restored.last().unwrap();
    assert!(last.contains("from own memory"), "{restored:?}");
    // The revision in force outlives the daemon.
    daemon.kill_daemon();
    daemon.launch();
    let again = daemon.until_step(step(&after) + 2);
    assert_eq!(pids(&again, "trainer"), pids(&after, "trainer"));
    no_incidents(&again);
    finish(daemon, steps);
}
