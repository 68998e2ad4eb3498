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

/// Which controller leads, and what it says of its authority; none: nobody does at the moment.
fn authority(all: &Controllers) -> Option<(usize, Value)> {
    let mut running = (0..all.count()).filter(|which| all.runs(*which));
    running.find_map(|which| Some((which, all.asked(which, &["ca", "show"])?)))
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
    let (_, former) = all.wait_until(authority);
    let said = all.said(first, &["ca", "rotate"]);
    assert!(!said.contains("error"), "{said}");
    all.signal(first, Signal::SIGKILL);
    let (second, after) = all.until("another one to go on", |s| step(s) > step(&before));
    assert_ne!(first, second);
    all.wait_for("the end of the rotation", |all| {
        authority(all).is_some_and(|(_, shown)| is_replaced(&shown, &former))
    });
    all.launch(first);
    all.wait_for("the first to follow", |all| {
        all.log(&format!("control-{first}")).contains(" leads it")
    });
    // Whoever leads then has only ever read the new secret in the log.
    let (second, shown) = all.wait_until(authority);
    all.signal(second, Signal::SIGKILL);
    let (third, last) = all.until("a third one to go on", |s| step(s) > step(&after) + 2);
    assert_ne!(second, third);
    let (_, kept) = all.wait_until(authority);
    assert_eq!(kept["name"], shown["name"], "{kept}\n{}", all.logs());
    let incidents = last["incidents"].as_array().unwrap();
    assert!(incidents.is_empty(), "{incidents:?}\n{}", all.logs());
    assert_eq!(roles, all.roles(), "{}", all.logs());
    all.stop(third);
}
