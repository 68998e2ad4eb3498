//! Real roles that log for programs: every line an object, but for the last words of a process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Cluster, Daemon, JobFile};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const JSON: (&str, &str) = ("ROBUST_LOG_FORMAT", "json");

/// The objects of a log; every other line must be what a role says as it ends.
fn objects(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let is_last_word = |line: &&str| line.starts_with("error: ");
    let lines = text.lines().filter(|line| !is_last_word(line));
    let read = |line: &str| {
        let object = serde_json::from_str::<Value>(line).ok();
        let object = object.filter(|read| read["level"].is_string() && read["fields"].is_object());
        object.unwrap_or_else(|| panic!("{}: no log object: {line}", path.display()))
    };
    lines.map(read).collect()
}

fn role_logs(state: &Path) -> Vec<PathBuf> {
    let logs = fs::read_dir(state.join("logs")).unwrap();
    logs.map(|entry| entry.unwrap().path()).collect()
}

/// Strikes somebody and waits for the recovery; the incident.
fn strike(daemon: &Daemon, args: &[&str]) -> Value {
    let command = [&["inject"], args, &["--wait"]].concat();
    daemon.json(&command)["incident"].clone()
}

#[test]
fn every_line_of_the_daemon_and_its_roles_is_an_object_and_incidents_show_the_reason() {
    let job = JobFile::small().set("job", "steps", 400);
    let mut daemon = Daemon::start_with(&job, &[JSON]);
    daemon.until_step(1);
    let killed = strike(&daemon, &["--kill", "trainer"]);
    assert_eq!(killed["reason"], "killed by SIGKILL", "{killed}");
    let thrown = strike(&daemon, &["--exception", "rollout", "--index", "1"]);
    let reason = thrown["reason"].as_str().unwrap();
    assert!(reason.contains("exception on request"), "{thrown}");
    let lives = |place: &str| {
        let out = daemon.ctl(&["logs", place, "--grep", "\"message\":\"started\""]);
        let text = String::from_utf8(out.stdout).unwrap();
        let lives = text.lines().map(|line| {
            let begin: Value = serde_json::from_str(line).unwrap();
            assert_eq!(begin["instance"], place, "{begin}");
            begin["incarnation"].as_u64().unwrap()
        });
        lives.collect::<Vec<u64>>()
    };
    assert_eq!(lives("trainer-0").len(), 2);
    assert_eq!(lives("rollout-1").len(), 2);
    assert_eq!(lives("rollout-0").len(), 1);
    let words = daemon.ctl(&["logs", "rollout-1", "--grep", "^error: "]);
    let words = String::from_utf8(words.stdout).unwrap();
    assert!(words.contains("exception on request"), "{words}");
    assert!(daemon.ctl(&["stop"]).status.success());
    assert_eq!(daemon.finish(), 1);
    let said = objects(&daemon.stderr());
    assert!(
        said.iter().any(|line| line["level"] == "ERROR"),
        "{said:#?}"
    );
    let logs = role_logs(&daemon.state_dir());
    assert_eq!(logs.len(), 7);
    for log in logs {
        assert!(objects(&log).len() > 1, "{}", log.display());
    }
}

#[test]
fn nodes_that_joined_and_their_roles_log_as_they_were_told() {
    let slots: &[(&str, i64)] = &[("train", 2), ("rollout", 2), ("agent", 1)];
    let job = JobFile::small().set("job", "steps", 3);
    let job = job.nodes(&[("a", slots), ("b", &[("rollout", 1), ("agent", 1)])]);
    let format = ["--log-format", "json"];
    let mut cluster = Cluster::start_with(&job, &format);
    cluster.join("b", &format);
    assert_eq!(cluster.leader.finish(), 0, "{}", cluster.logs());
    assert_eq!(cluster.end_of("b"), 0, "{}", cluster.logs());
    let mut logs = role_logs(&cluster.state_dir("b"));
    assert_eq!(logs.len(), 2, "{logs:?}");
    logs.extend([cluster.log("b"), cluster.leader.stderr()]);
    for log in logs {
        assert!(objects(&log).len() > 1, "{}", log.display());
    }
}
