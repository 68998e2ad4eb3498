//! One clear error, a documented exit code, nothing started.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Daemon, JobFile, PATIENCE, bin, cache, processes_naming};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

fn robustd(dir: &Path, job: &Path, more: &[&str]) -> Output {
    let state = dir.join("state");
    Command::new(bin("robustd"))
        .arg("--job")
        .arg(job)
        .arg("--state-dir")
        .arg(&state)
        .env("ROBUST_CACHE", cache())
        .args(more)
        .output()
        .unwrap()
}

fn refused(job: &JobFile, more: &[&str], code: i32, says: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let path = job.write(dir.path());
    let out = robustd(dir.path(), &path, more);
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(code), "{text}");
    for word in says {
        assert!(text.contains(word), "`{word}` is not in:\n{text}");
    }
    assert_eq!(
        processes_naming(dir.path()),
        vec![],
        "something was started"
    );
}

#[test]
fn an_unknown_key_is_refused_with_its_place() {
    refused(
        &JobFile::small().set("trainer", "rank", 2),
        &[],
        2,
        &["job.toml", "rank"],
    );
}

#[test]
fn a_placement_that_cannot_be_is_refused_with_the_node_and_the_number_missing() {
    refused(
        &JobFile::small().set("trainer", "ranks", 8),
        &[],
        2,
        &["node", "pool"],
    );
}

#[test]
fn a_missing_dataset_is_refused_with_its_path() {
    let job = JobFile::small().set("data", "prompts", "/nowhere/prompts.jsonl");
    refused(&job, &[], 6, &["/nowhere/prompts.jsonl"]);
}

/// A role finds it in its start-up, and no restart cures it.
#[test]
fn a_network_device_that_is_not_there_ends_the_job_with_its_name_and_those_that_are() {
    let begin = Instant::now();
    for devices in ["nic9", "lo,nic9"] {
        let job = JobFile::small()
            .set("weights", "transport", "ucx-tcp-unsafe")
            .set("weights", "net_devices", devices);
        let says = [
            "failed in start-up",
            "UCX has no network device `nic9`",
            "lo",
        ];
        refused(&job, &[], 1, &says);
    }
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
}

#[test]
fn a_missing_model_is_refused_with_its_path() {
    let job = JobFile::small().set("model", "path", "/nowhere/model");
    refused(&job, &[], 6, &["/nowhere/model"]);
}

#[test]
fn what_is_no_address_is_refused_with_an_example() {
    for flag in ["--listen", "--metrics", "--router"] {
        let given = [flag, "localhost:7070"];
        let says = [flag, "localhost:7070", "127.0.0.1:7070"];
        refused(&JobFile::small(), &given, 5, &says);
    }
}

#[test]
fn an_occupied_port_is_refused_with_the_address() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    refused(&JobFile::small(), &["--listen", &addr], 5, &[&addr]);
}

#[test]
fn a_damaged_store_is_set_aside_and_the_job_goes_on_from_its_newest_state() {
    let job = JobFile::small().set("job", "steps", 400);
    let mut daemon = Daemon::start(&job.set("checkpoint", "every", 1));
    daemon.until_step(2);
    daemon.kill_daemon();
    let before: Vec<i32> = daemon.processes().into_iter().map(|(pid, _)| pid).collect();
    let state = daemon.state_dir();
    std::fs::write(state.join("db/db"), b"this is no database").unwrap();
    daemon.launch();
    daemon.until_step(3);
    let now = daemon.processes();
    assert!(now.iter().all(|(pid, _)| !before.contains(pid)), "{now:?}");
    let said = daemon.events("store").join("\n");
    assert!(
        said.contains("is set aside as") && said.contains("The job goes on from the "),
        "{said}"
    );
}

#[test]
fn injecting_into_what_is_not_there_is_refused_with_the_reason() {
    let mut daemon = Daemon::start(&JobFile::small().set("job", "steps", 400));
    daemon.until_step(1);
    let out = daemon.ctl(&["inject", "--kill", "rollout", "--index", "9"]);
    assert_eq!(
        out.status.code(),
        Some(4),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert!(String::from_utf8_lossy(&out.stderr).contains("rollout 9"));
    let out = daemon.ctl(&["inject", "--kill", "trainr"]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("trainer"));
}

#[test]
fn without_a_home_nothing_is_put_where_others_may_write_and_it_is_said_what_to_name() {
    let job = tempfile::tempdir().unwrap();
    let file = JobFile::small().write(job.path()).display().to_string();
    let slurm = ["slurm", "submit", &file, "--nodes", "1", "--print"];
    for (program, words, code, says) in [
        ("robustd", &["--inspect"][..], 4, "--state-dir"),
        ("robustctl", &["status"], 2, "--state-dir"),
        ("robustctl", &["ckpt", "ls"], 2, "--state-dir"),
        ("robustctl", &slurm, 2, "--local"),
    ] {
        let mut command = Command::new(bin(program));
        let out = command.env_clear().args(words).output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{program} {words:?}: {text}");
        assert!(text.contains(says), "{program} {words:?}: {text}");
    }
    // The warm start of a job without a model of its own.
    let mut command = Command::new(bin("robustd"));
    command.args(["--job", &file, "--state-dir"]);
    let command = command.arg(job.path().join("state")).env_clear();
    let out = command.output().unwrap();
    let text = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(6), "{text}");
    assert!(text.contains("ROBUST_CACHE"), "{text}");
}
