//! The programs of this build beside those of an earlier one, which `ROBUST_FORMER` names the folder of.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Controllers, JobFile, assert_consumed_once};
use serde_json::Value;
use std::path::PathBuf;

const SLOTS: &[(&str, i64)] = &[("train", 2), ("rollout", 3), ("agent", 2)];
const STEPS: i64 = 60;
const PER_STEP: usize = 16;

/// The former programs; none, which is said, where nobody names any.
fn former() -> Option<PathBuf> {
    let folder = std::env::var_os("ROBUST_FORMER").map(PathBuf::from);
    if folder.is_none() {
        robust_needs::elsewhere(
            "controllers of two builds",
            "`make test-upgrade FORMER=DIR`, where DIR has the former programs",
        );
    }
    folder
}

fn step(status: &Value) -> u64 {
    status["step"].as_u64().unwrap_or(0)
}

fn no_incident(all: &Controllers, status: &Value) {
    let incidents = status["incidents"].as_array().unwrap();
    assert!(incidents.is_empty(), "{incidents:?}\n{}", all.logs());
}

/// Exchanges all controllers, one after the other, the leader last, while the job goes on.
fn exchange_all(all: &mut Controllers, programs: Option<&PathBuf>) {
    let (leader, status) = all.until("the job to be at work", |s| step(s) >= 1);
    let followers = (0..3).filter(|which| *which != leader);
    for which in followers.chain([leader]) {
        let follows = format!("c{which} is a controller");
        let said = all
            .log(&format!("control-{which}"))
            .matches(&follows)
            .count();
        all.exchange(which, programs.map(PathBuf::as_path));
        all.wait_for("it to follow", |all| {
            let log = all.log(&format!("control-{which}"));
            log.matches(&follows).count() > said
                && log.lines().rev().any(|l| l.contains("leads it"))
        });
    }
    let (_, after) = all.until("the job to go on", |s| step(s) > step(&status) + 1);
    no_incident(all, &after);
}

#[test]
fn controllers_are_upgraded_and_rolled_back_one_after_the_other_while_the_job_goes_on() {
    let Some(former) = former() else { return };
    let job = JobFile::small()
        .set("job", "steps", STEPS)
        .nodes(&[("a", SLOTS)]);
    let Some(mut all) = Controllers::start_with(&former, &job, 3) else {
        return;
    };
    all.join("a");
    all.until("the job to be at work", |s| step(s) >= 1);
    let roles = all.roles();
    exchange_all(&mut all, None);
    exchange_all(&mut all, Some(&former));
    exchange_all(&mut all, None);
    assert_eq!(roles, all.roles(), "{}", all.logs());
    let (codes, nodes) = all.finish();
    assert!(
        codes.iter().chain(&nodes).all(|code| *code == 0),
        "{codes:?} {nodes:?}\n{}",
        all.logs()
    );
    let last = (0..3).find(|which| {
        let log = all.log(&format!("control-{which}"));
        log.contains("completed") && !log.contains("the job is over: completed")
    });
    assert_consumed_once(
        &all.state_dir(last.expect("one of them led")),
        STEPS as u64,
        PER_STEP,
    );
}
