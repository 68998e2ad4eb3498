//! The secret of a job's leader is replaced under several controllers, and those that lead die meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::Signal;
use robust_tests::{Controllers, JobFile};
use serde_json::Value;

const SLOTS: &[(&str, i64)] = &[("train", 1), ("rollout", 1), ("agent", 1)];
const MORE: &[(&str, i64)] = &[("train", 1), ("rollout", 2), ("agent", 1)];

fn step(status: &Value) -> u64 {
    status["step"].as_u64().unwrap_or(0)
}

/// What a leader says of its authority; none: it leads no more, or not yet.
fn authority(all: &Controllers, leader: usize) -> Option<Value> {
    all.asked(leader, &["ca", "show"])
}

/// One authority is left, another one than that of this name, and everybody is certified by it.
fn is_replaced(shown: &Value, former: &Value) -> bool {
    let certified = shown["certified"].as_array().cloned().unwrap_or_default();
    let by_it = certified.iter().all(|c| c["authority"] == shown["name"]);
    shown["name"] != former["name"] && shown["stage"] == "" && !certified.is_empty() && by_it
}

#[test]
fn a_secret_that_is_being_replaced_is_that_of_whoever_leads_next() {
    let job = JobFile::small()
        .set("job", "steps", 1000)
        .nodes(&[("a", SLOTS), ("b", MORE)]);
    let Some(mut all) = Controllers::start(&job, 3) else {
        return;
    };
    all.join("a");
    all.join("b");
    let (first, before) = all.until("the job to be at work", |s| step(s) >= 2);
    let roles = all.roles();
    let former = authority(&all, first).unwrap();
    let said = all.said(first, &["ca", "rotate"]);
    assert!(!said.contains("error"), "{said}");
    all.signal(first, Signal::SIGKILL);
    let (second, after) = all.until("another one to go on", |s| step(s) > step(&before));
    assert_ne!(first, second);
    all.wait_for("the end of the rotation", |all| {
        authority(all, second).is_some_and(|shown| is_replaced(&shown, &former))
    });
    all.launch(first);
    all.wait_for("the first to follow", |all| {
        let log = all.log(&format!("control-{first}"));
        log.contains(&format!("c{second} leads it"))
    });
    // Whoever leads then has only ever read the new secret in the log.
    let shown = authority(&all, second).unwrap();
    all.signal(second, Signal::SIGKILL);
    let (third, last) = all.until("a third one to go on", |s| step(s) > step(&after) + 2);
    assert_ne!(second, third);
    let kept = authority(&all, third).unwrap();
    assert_eq!(kept["name"], shown["name"], "{kept}\n{}", all.logs());
    assert_eq!(
        last["incidents"].as_array().unwrap().len(),
        0,
        "{last}\n{}",
        all.logs()
    );
    assert_eq!(roles, all.roles(), "{}", all.logs());
    all.stop(third);
}
