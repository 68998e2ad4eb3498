//! The daemon itself killed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Daemon, JobFile};
use serde_json::Value;

fn pids(status: &Value) -> Vec<(String, u64)> {
    let roles = status["roles"].as_array().unwrap();
    let name = |r: &Value| format!("{}-{}", r["role"].as_str().unwrap(), r["index"]);
    roles
        .iter()
        .map(|r| (name(r), r["pid"].as_u64().unwrap()))
        .collect()
}

#[test]
fn a_restarted_daemon_adopts_the_living_roles_and_the_job_goes_on() {
    let mut daemon = Daemon::start(&JobFile::small().set("job", "steps", 400));
    let before = daemon.until_step(2);
    daemon.kill_daemon();
    assert_eq!(
        daemon.processes().len(),
        7,
        "roles outlive their daemon: {:?}",
        daemon.processes()
    );
    daemon.launch();
    let step = before["step"].as_u64().unwrap();
    let after = daemon.until_step(step + 3);
    assert_eq!(
        pids(&before),
        pids(&after),
        "roles were restarted\n{}",
        daemon.logs()
    );
}

#[test]
fn a_role_that_died_while_no_daemon_ran_is_restarted() {
    let mut daemon = Daemon::start(&JobFile::small().set("job", "steps", 400));
    let before = daemon.until_step(1);
    daemon.kill_daemon();
    let rank = daemon
        .processes()
        .into_iter()
        .find(|(_, line)| line.contains(" trainer "))
        .unwrap();
    let pid = nix::unistd::Pid::from_raw(rank.0);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
    daemon.launch();
    let step = before["step"].as_u64().unwrap();
    daemon.until_step(step + 3);
}

#[test]
fn a_second_daemon_on_the_same_state_is_refused() {
    let mut daemon = Daemon::start(&JobFile::small().set("job", "steps", 400));
    daemon.until_step(1);
    let out = std::process::Command::new(robust_tests::bin("robustd"))
        .args([
            "--job",
            robust_tests::fixture("jobs/test.toml").to_str().unwrap(),
        ])
        .arg("--state-dir")
        .arg(daemon.state_dir())
        .output()
        .unwrap();
    assert_eq!(
        out.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    daemon.until_step(2);
}
