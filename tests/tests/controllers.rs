//! Several controllers of one real job: the one that leads is killed, frozen, asked to end, and cut off from etcd.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::Signal;
use robust_tests::{Controllers, Daemon, JobFile, assert_consumed_once};
use serde_json::Value;
use std::time::{Duration, Instant};

const SLOTS: &[(&str, i64)] = &[("train", 1), ("rollout", 1), ("agent", 1)];
const MORE: &[(&str, i64)] = &[("train", 1), ("rollout", 2), ("agent", 1)];
const PER_STEP: usize = 16;

fn start(steps: i64) -> Option<Controllers> {
    let job = JobFile::small()
        .set("job", "steps", steps)
        .nodes(&[("a", SLOTS), ("b", MORE)]);
    let mut all = Controllers::start(&job, 3)?;
    all.join("a");
    all.join("b");
    Some(all)
}

fn step(status: &Value) -> u64 {
    status["step"].as_u64().unwrap_or(0)
}

/// Every role has a slot and serves.
fn is_whole(status: &Value) -> bool {
    let all = status["roles"].as_array().cloned().unwrap_or_default();
    all.len() >= 4 && all.iter().all(|r| r["state"] == "running")
}

/// The leader once the job is at work, and its status.
fn at_work(all: &mut Controllers, steps: u64) -> (usize, Value) {
    all.until("the job to be at work", |s| step(s) >= steps && is_whole(s))
}

/// The job ends, with every controller and node, and nothing was consumed twice or lost.
fn finish(mut all: Controllers, steps: u64) {
    let (controllers, nodes) = all.finish();
    assert!(
        controllers.iter().all(|code| *code == 0),
        "{controllers:?}\n{}",
        all.logs()
    );
    assert!(
        nodes.iter().all(|code| *code == 0),
        "{nodes:?}\n{}",
        all.logs()
    );
    let whole = (0..3).filter(|which| all.state_dir(*which).join("db").exists());
    let led = whole.filter(|which| all.log(&format!("control-{which}")).contains("completed"));
    let led: Vec<usize> = led.collect();
    assert!(!led.is_empty(), "{}", all.logs());
    let last = led.into_iter().find(|w| {
        let log = all.log(&format!("control-{w}"));
        !log.contains("the job is over: completed")
    });
    assert_consumed_once(
        &all.state_dir(last.expect("one of them led")),
        steps,
        PER_STEP,
    );
}

#[test]
fn the_death_of_the_leader_restarts_no_role_and_another_controller_goes_on() {
    let Some(mut all) = start(14) else { return };
    let (first, before) = at_work(&mut all, 2);
    let roles = all.roles();
    let follower = (first + 1) % 3;
    let said = all.said(follower, &["status"]);
    assert!(said.contains(&format!("c{first} leads")), "{said}");
    all.signal(first, Signal::SIGKILL);
    let killed = Instant::now();
    let (second, after) = all.until("another one to go on", |s| step(s) > step(&before));
    println!("a step under another leader after {:?}", killed.elapsed());
    assert_ne!(first, second);
    assert_eq!(
        after["incidents"].as_array().unwrap().len(),
        0,
        "{after}\n{}",
        all.logs()
    );
    assert_eq!(roles, all.roles(), "{}", all.logs());
    // The one that died follows, and goes on when the other dies.
    all.launch(first);
    all.wait_for("the first to follow", |all| {
        all.log(&format!("control-{first}"))
            .contains(&format!("c{second} leads it"))
    });
    all.signal(second, Signal::SIGKILL);
    let (third, after) = all.until("a third one to go on", |s| step(s) > step(&after));
    assert_ne!(second, third);
    assert_eq!(
        after["incidents"].as_array().unwrap().len(),
        0,
        "{after}\n{}",
        all.logs()
    );
    assert_eq!(roles, all.roles(), "{}", all.logs());
    finish(all, 14);
}

#[test]
fn a_leader_that_was_frozen_finds_that_another_one_leads_and_follows() {
    let Some(mut all) = start(14) else { return };
    let (first, before) = at_work(&mut all, 2);
    let roles = all.roles();
    all.signal(first, Signal::SIGSTOP);
    let start = Instant::now();
    let (second, _) = all.until_other(first, |s| step(s) > step(&before));
    println!("a step under another leader after {:?}", start.elapsed());
    all.signal(first, Signal::SIGCONT);
    all.wait_for("the first to follow", |all| {
        let log = all.log(&format!("control-{first}"));
        log.contains("leads no more") && log.contains(&format!("c{second} leads it"))
    });
    assert_eq!(roles, all.roles(), "{}", all.logs());
    finish(all, 14);
}

#[test]
fn a_leader_that_is_asked_to_end_hands_over_at_once() {
    let Some(mut all) = start(10) else { return };
    let (first, before) = at_work(&mut all, 2);
    let roles = all.roles();
    all.signal(first, Signal::SIGTERM);
    let (second, after) = all.until_other(first, |s| step(s) > step(&before));
    assert_ne!(first, second);
    assert_eq!(
        after["incidents"].as_array().unwrap().len(),
        0,
        "{after}\n{}",
        all.logs()
    );
    assert_eq!(roles, all.roles(), "{}", all.logs());
    assert_eq!(all.end_of(first), 143, "{}", all.logs());
    all.launch(first);
    finish(all, 10);
}

#[test]
fn etcd_without_a_majority_stops_the_job_and_loses_nothing_of_it() {
    let Some(mut all) = start(10) else { return };
    at_work(&mut all, 2);
    let roles = all.roles();
    all.etcd.kill(0);
    all.etcd.kill(1);
    std::thread::sleep(Duration::from_secs(5));
    all.etcd.restart(0);
    all.until("the job to go on", |s| step(s) >= 6);
    assert_eq!(roles, all.roles(), "{}", all.logs());
    finish(all, 10);
}

#[test]
fn a_leader_that_is_lost_before_its_job_began_costs_nothing() {
    let job = JobFile::small()
        .set("job", "steps", 3)
        .nodes(&[("a", SLOTS), ("b", MORE)]);
    let Some(mut all) = Controllers::start(&job, 3) else {
        return;
    };
    let (first, _) = all.until("one to lead", |_| true);
    all.signal(first, Signal::SIGKILL);
    all.until_other(first, |_| true);
    all.launch(first);
    all.join("a");
    all.join("b");
    finish(all, 3);
}

#[test]
fn while_another_controller_leads_none_goes_on_alone_with_a_way_to_etcd_or_without() {
    let Some(mut all) = start(1_000) else { return };
    let (first, before) = at_work(&mut all, 2);
    let other = (first + 1) % 3;
    all.signal(other, Signal::SIGKILL);
    all.launch_alone(other, &[]);
    assert_eq!(all.end_of(other), 2, "{}", all.logs());
    let said = |all: &Controllers| all.log(&format!("control-{other}"));
    assert!(said(&all).contains("etcd answers"), "{}", all.logs());
    all.lose_way_to_etcd(other);
    all.launch_alone(other, &[]);
    assert_eq!(all.end_of(other), 2, "{}", all.logs());
    assert!(
        said(&all).contains("somebody writes the job's log"),
        "{}",
        all.logs()
    );
    let (leader, _) = all.until("the job to go on", |s| step(s) > step(&before));
    assert_eq!(leader, first);
    all.stop(leader);
}

#[test]
fn where_etcd_is_lost_one_controller_goes_on_alone_from_the_log() {
    let Some(mut all) = start(1_000) else { return };
    let (_, before) = at_work(&mut all, 2);
    all.goes_on_alone();
    let (alone, after) = all.until("the job to go on", |s| step(s) > step(&before) + 1);
    assert_eq!(alone, 0);
    assert_eq!(
        after["started_ms"], before["started_ms"],
        "it is the same job: {after}"
    );
    assert!(after["controllers"].is_null(), "{after}");
    // Etcd is back as it was, which is older than the job.
    all.signal(alone, Signal::SIGKILL);
    for member in 0..all.etcd.endpoints().len() {
        all.etcd.restart(member);
    }
    all.launch(alone);
    assert_eq!(all.end_of(alone), 2, "{}", all.logs());
    let log = all.log(&format!("control-{alone}"));
    assert!(log.contains("has gone on without etcd"), "{log}");
    all.launch_alone(alone, &[]);
    let (alone, later) = all.until("the job to go on", |s| step(s) > step(&after) + 1);
    assert_eq!(alone, 0);
    assert!(later["controllers"].is_null(), "{later}");
    all.stop(alone);
}

#[test]
fn the_loss_of_the_only_controllers_disk_costs_no_step_where_there_is_a_log() {
    let elsewhere = tempfile::tempdir().unwrap();
    let folder = |name: &str| format!("file://{}/{name}", elsewhere.path().display());
    let job = JobFile::small()
        .set("job", "steps", 6)
        .set("store", "remote_log", folder("log"))
        .set("checkpoint", "every", 1)
        .set("checkpoint", "remote", folder("ckpt"));
    let mut daemon = Daemon::start(&job);
    daemon.until_step(3);
    daemon.goes_on_from(&folder("log"));
    let after = daemon.until("the job to go on", |s| is_whole(s) || step(s) > 3);
    assert!(step(&after) >= 3, "{after}");
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert_consumed_once(&daemon.state_dir(), 6, PER_STEP);
}

#[test]
fn controllers_whose_log_is_in_an_object_store_go_on_one_after_the_other_and_wait_for_it() {
    let job = JobFile::small()
        .set("job", "steps", 14)
        .nodes(&[("a", SLOTS), ("b", MORE)]);
    let Some(mut all) = Controllers::on_s3(&job, 3) else {
        return;
    };
    all.join("a");
    all.join("b");
    let (first, before) = at_work(&mut all, 2);
    let roles = all.roles();
    all.signal(first, Signal::SIGKILL);
    let (second, after) = all.until("another one to go on", |s| step(s) > step(&before));
    assert_ne!(first, second);
    // It answers nobody, and closes nothing: what hangs is heard of by nothing but the time that passes.
    let store = all.store.as_ref().unwrap();
    store.freeze();
    all.until("the leader to say so", |s| {
        s["alarms"].to_string().contains("log away")
    });
    all.store.as_ref().unwrap().thaw();
    let (_, last) = all.until("it to go on", |s| step(s) > step(&after) + 1);
    assert_eq!(
        last["incidents"].as_array().unwrap().len(),
        0,
        "{last}\n{}",
        all.logs()
    );
    assert_eq!(roles, all.roles(), "{}", all.logs());
    finish(all, 14);
}
