//! A receiver is told of the incidents of a real job, and operators write beside them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::Signal;
use robust_tests::{Controllers, Daemon, Hook, JobFile};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The longest that a document is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

fn until_heard(hook: &Hook, what: &str, is_so: impl Fn(&[(String, Value)]) -> bool) {
    let begun = Instant::now();
    while !is_so(&hook.incidents()) {
        assert!(begun.elapsed() < PATIENCE, "no {what}: {:#?}", hook.heard());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Events and incidents' numbers.
fn told(hook: &Hook) -> Vec<(String, u64)> {
    let all = hook.incidents().into_iter();
    all.map(|(event, incident)| (event, incident["id"].as_u64().unwrap()))
        .collect()
}

fn wanted(id: u64) -> [(String, u64); 2] {
    ["incident_begins", "incident_ends"].map(|event| (event.to_owned(), id))
}

fn job(hook: &Hook) -> JobFile {
    JobFile::small()
        .set("job", "steps", 400)
        .set("alarms", "webhook", hook.url())
}

#[test]
fn the_receiver_hears_begin_and_end_of_exactly_the_incident_that_there_was() {
    let hook = Hook::start();
    let mut daemon = Daemon::start(&job(&hook));
    daemon.until_step(1);
    assert_eq!(hook.incidents(), []);
    let args = ["inject", "--wait", "--timeout", "120", "--kill", "rollout"];
    let args = [&args[..], &["--index", "1"]].concat();
    let incident = daemon.json(&args)["incident"].clone();
    let id = incident["id"].as_u64().unwrap();
    until_heard(&hook, "end of it", |all| all.len() >= 2);
    assert_eq!(told(&hook), wanted(id), "{}", daemon.logs());
    let ended = &hook.incidents()[1].1;
    for (key, value) in [
        ("role", "rollout"),
        ("rule", "exit"),
        ("outcome", "recovered"),
    ] {
        assert_eq!(ended[key], value, "{ended}");
    }
    assert_eq!(ended["index"], 1, "{ended}");
    for figure in ["detect_ms", "restart_ms", "reconnect_ms", "total_ms"] {
        assert!(ended[figure].as_f64() > Some(0.0), "{figure} of {ended}");
    }
    let status = daemon.status();
    assert_eq!(hook.heard()[0]["job"], status["job"]);
    // A daemon that starts again says none of it a second time.
    let step = daemon.status()["step"].as_u64().unwrap();
    daemon.until_step(step + 2);
    daemon.kill_daemon();
    daemon.launch();
    daemon.until_step(step + 4);
    assert_eq!(told(&hook), wanted(id), "{}", daemon.logs());
    // The address is nobody's to read but the job file's.
    assert!(!daemon.logs().contains("/hook"), "{}", daemon.logs());
    let report = daemon.json(&["report"]).to_string();
    assert!(!report.contains(hook.url()), "{report}");
}

#[test]
fn a_note_stays_with_its_incident_and_a_receiver_that_refuses_holds_up_nothing() {
    let hook = Hook::start();
    hook.answer(500);
    let mut daemon = Daemon::start(&job(&hook));
    daemon.until_step(1);
    let args = ["inject", "--wait", "--timeout", "120", "--kill", "agent"];
    let args = [&args[..], &["--index", "0"]].concat();
    let incident = daemon.json(&args)["incident"].clone();
    let id = incident["id"].as_u64().unwrap().to_string();
    let text = "the switch in rack 4 lost power";
    let reply = daemon.json(&["note", &id, text]);
    assert_eq!(reply["note"]["text"], text, "{reply}");
    assert_eq!(reply["count"], 1, "{reply}");
    let unknown = daemon.ctl(&["note", "77", text]);
    assert_eq!(unknown.status.code(), Some(4));
    let said = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(said.contains("there is no incident 77"), "{said}");
    let orders = daemon.ctl(&["note", &id, "a\x1b[2Jb"]);
    assert_eq!(orders.status.code(), Some(4));

    let step = daemon.status()["step"].as_u64().unwrap();
    daemon.until_step(step + 2);
    daemon.kill_daemon();
    daemon.launch();
    daemon.until_step(step + 4);
    let markdown = daemon.ctl(&["report", "--incident", &id]);
    let markdown = String::from_utf8_lossy(&markdown.stdout).into_owned();
    assert!(
        markdown.contains("## Notes") && markdown.contains(text),
        "{markdown}"
    );
    let report = daemon.json(&["report"]);
    assert_eq!(report["incidents"][0]["notes"][0]["text"], text, "{report}");
    let audit = daemon.ctl(&["audit", "--json"]);
    let audit = String::from_utf8_lossy(&audit.stdout).into_owned();
    assert!(audit.contains("note") && audit.contains(text), "{audit}");
    // What was refused all the time comes once the receiver takes it.
    assert!(!hook.heard().is_empty(), "{}", daemon.logs());
    hook.answer(200);
    until_heard(&hook, "end of it", |all| all.len() >= 2);
    assert_eq!(
        told(&hook),
        wanted(id.parse().unwrap()),
        "{}",
        daemon.logs()
    );
}

#[test]
fn another_leader_tells_what_was_not_heard_and_has_the_notes() {
    let hook = Hook::start();
    let few: &[(&str, i64)] = &[("train", 1), ("rollout", 1), ("agent", 1)];
    let more: &[(&str, i64)] = &[("train", 1), ("rollout", 2), ("agent", 1)];
    let job = job(&hook).nodes(&[("a", few), ("b", more)]);
    let Some(mut all) = Controllers::start(&job, 2) else {
        return;
    };
    all.join("a");
    all.join("b");
    let is_whole = |s: &Value| {
        let roles = s["roles"].as_array().cloned().unwrap_or_default();
        s["step"].as_u64() >= Some(1) && roles.iter().all(|r| r["state"] == "running")
    };
    let (first, _) = all.until("the job to be at work", is_whole);
    hook.answer(503);
    let inject = ["inject", "--kill", "rollout", "--index", "0"];
    all.asked(first, &inject).expect("the fault strikes");
    let is_over = |s: &Value| s["incidents"][0]["outcome"] == "recovered";
    let (_, over) = all.until("the recovery", is_over);
    let id = over["incidents"][0]["id"].as_u64().unwrap();
    let said = all.said(first, &["note", &id.to_string(), "seen before"]);
    assert!(said.contains("note 1 of incident"), "{said}");
    all.signal(first, Signal::SIGKILL);
    let noted = |s: &Value| s["incidents"][0]["notes"][0]["text"] == "seen before";
    let (second, _) = all.until_other(first, noted);
    hook.answer(204);
    until_heard(&hook, "end of it", |all| all.len() >= 2);
    assert_eq!(told(&hook), wanted(id), "{}", all.logs());
    let last = hook.heard().pop().unwrap();
    assert_eq!(last["leader"], format!("c{second}"), "{last}");
    all.stop(second);
}
