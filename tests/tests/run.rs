//! `robustctl run` and what is asked of a job that it left running.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_tests::{PATIENCE, bin, cache, fixture, processes_naming};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Instant;

/// A state directory whose processes nobody else's test starts, and their end.
struct Site(tempfile::TempDir);

impl Site {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(bin("robustctl"));
        command
            .arg("--state-dir")
            .arg(self.state())
            .args(args)
            .env("ROBUST_CACHE", cache())
            .stdin(Stdio::null());
        command
    }

    fn ctl(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        let out = self.ctl(&[args, &["--json"]].concat());
        assert!(out.status.success(), "{args:?}: {}", text(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }

    fn until_nothing_is_left(&self) {
        let begin = Instant::now();
        while !processes_naming(self.0.path()).is_empty() {
            assert!(begin.elapsed() < PATIENCE, "processes were left");
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for (pid, _) in processes_naming(self.0.path()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn job() -> String {
    fixture("jobs/test.toml").display().to_string()
}

#[test]
fn a_job_is_seen_through_and_its_outcome_is_the_exit_code() {
    let site = Site::new();
    let out = site.ctl(&["run", &job(), "--steps", "2"]);
    let (said, errors) = (text(&out.stdout), text(&out.stderr));
    assert!(out.status.success(), "{said}\n{errors}");
    assert!(said.contains("completed after 2 steps"), "{said}");
    site.until_nothing_is_left();
    let missing = site.ctl(&["run", "no-such-job.toml"]);
    assert_eq!(missing.status.code(), Some(2), "{}", text(&missing.stderr));
    let errors = text(&missing.stderr);
    assert!(errors.contains("no-such-job.toml"), "{errors}");
}

#[test]
fn a_job_that_is_left_running_is_paused_looked_at_resumed_and_ended() {
    let site = Site::new();
    let left = site.json(&["run", &job(), "--steps", "1000", "--detach"]);
    assert!(left["pid"].as_u64().is_some_and(|pid| pid > 1), "{left}");
    let again = site.ctl(&["run", &job()]);
    assert_eq!(again.status.code(), Some(4), "{}", text(&again.stderr));
    let paused = site.json(&["pause", "--wait", "--timeout", "120"]);
    assert_eq!(paused["state"], "paused", "{paused}");
    let step = site.json(&["status"])["step"].clone();
    let rank = site.json(&["roles", "trainer-0"]);
    let phases = rank[0]["phases"].as_array().unwrap();
    assert!(phases.len() > 1, "{rank}");
    assert_eq!(phases.last().unwrap()["present"], true, "{rank}");
    let log = site.ctl(&["logs", "trainer-0", "--tail", "3"]);
    assert!(log.status.success(), "{}", text(&log.stderr));
    assert!(text(&log.stdout).lines().count() <= 3);
    let restarted = site.ctl(&["restart", "rollout-0"]);
    assert_eq!(text(&restarted.stdout), "rollout-0 is restarted: now\n");
    assert_eq!(site.json(&["status"])["step"], step, "it is paused");
    assert!(site.ctl(&["resume"]).status.success());
    let begin = Instant::now();
    while site.json(&["status"])["step"].as_u64() <= step.as_u64() {
        assert!(begin.elapsed() < PATIENCE, "it does not go on");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let incidents = site.json(&["status"])["incidents"].clone();
    assert_eq!(incidents.as_array().map(Vec::len), Some(0), "{incidents}");
    assert!(site.ctl(&["stop"]).status.success());
    site.until_nothing_is_left();
}

fn until_it_runs(site: &Site) {
    let begin = Instant::now();
    while processes_naming(&site.state()).len() < 4 {
        assert!(begin.elapsed() < PATIENCE, "no roles");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_signal_is_passed_on_and_the_job_ends_in_order() {
    let site = Site::new();
    let mut command = site.command(&["run", &job(), "--steps", "1000"]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until_it_runs(&site);
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let left = processes_naming(Path::new(&site.state()));
    assert_eq!(left, vec![], "processes were left");
}
