//! Lives in control groups of their own: what escapes ends with them, and what takes more memory than it may is
//! ended, said so, and restarted alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use robust_tests::{Daemon, JobFile, bin, groups, roles};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// An engine that starts a process which leaves its session and its environment behind, and once, when somebody
/// made `$0/hungry`, keeps all that it reads without an end.
const ENGINE: &str = r#"
setsid env -i sleep 987654 > /dev/null 2>&1 &
echo $! > "$0/escaped-$1.new"; mv "$0/escaped-$1.new" "$0/escaped-$1"; shift
"$@" & engine=$!
until mkdir "$0/hungry/eaten" 2> /dev/null; do kill -0 $engine || exit 1; sleep 0.2; done
exec tail /dev/zero
"#;

fn job(folder: &Path) -> JobFile {
    let fake = JobFile::of_fixture("jobs/engines-fake.toml");
    let mut argv: Vec<toml::Value> = vec!["sh".into(), "-c".into(), ENGINE.into()];
    argv.push(folder.to_string_lossy().into_owned().into());
    argv.push("{index}".into());
    let engine = [
        "{env:FAKE_ENGINE}",
        "--dialect",
        "vllm",
        "--model",
        "{model}",
        "--host",
        "{bind}",
        "--port",
        "{port}",
        "--enable-scale-out",
    ];
    argv.extend(engine.map(toml::Value::from));
    fake.set("job", "steps", 1000_i64)
        .set("rollout.command", "argv", argv)
        .set("rollout.limits", "memory", "512MiB")
        .set("rollout.limits", "cpus", 2.0)
        .set("agent.limits", "pids", 2000_i64)
}

fn pids(status: &Value) -> BTreeMap<String, i64> {
    let all = status["roles"].as_array().unwrap().iter();
    let pid = |r: &Value| r["pid"].as_i64().unwrap();
    let name = |r: &Value| format!("{}-{}", r["role"].as_str().unwrap(), r["index"]);
    all.map(|r| (name(r), pid(r))).collect()
}

fn escaped(folder: &Path, index: u32) -> i32 {
    let text = std::fs::read_to_string(folder.join(format!("escaped-{index}")));
    text.map_or(0, |text| text.trim().parse().unwrap())
}

fn lives(pid: i32) -> bool {
    pid > 0 && kill(Pid::from_raw(pid), None).is_ok()
}

fn signal(pid: i64, signal: Signal) {
    kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
}

fn group_of(pid: i64) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap()
}

fn all_run(status: &Value) -> bool {
    let all = status["roles"].as_array().unwrap();
    all.iter().all(|r| r["state"] == "running")
}

/// Whether groups with limits can be made here; it is said where not.
fn can_limit() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let permitted = groups(dir.path()).permitted(robust_tree::Controller::ALL);
    if let Err(why) = &permitted {
        robust_needs::skip(why, robust_needs::ROOT);
    }
    permitted.is_ok()
}

#[test]
fn a_life_ends_with_all_that_it_started_and_by_its_own_limit_alone() {
    if !can_limit() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let engine = bin("fake-engine");
    let env = [("FAKE_ENGINE", &*engine.to_string_lossy())];
    let mut daemon = Daemon::start_with(&job(dir.path()), &env);
    daemon.until_step(1);
    let status = daemon.until("all roles", all_run);
    let before = pids(&status);
    let first = before["rollout-0"];
    let (own, other) = (group_of(first), group_of(before["rollout-1"]));
    assert!(
        own.contains("/rollout-0.") && other.contains("/rollout-1."),
        "{own}"
    );

    // The daemon dies: its roles stay where they are, and its next life has them.
    daemon.kill_daemon();
    daemon.launch();
    let status = daemon.until("all roles again", all_run);
    assert_eq!(pids(&status), before);
    assert_eq!(group_of(first), own);

    // An engine's shim is killed: nobody is left who knows of what escaped.
    let (gone, stays) = (escaped(dir.path(), 0), escaped(dir.path(), 1));
    assert!(lives(gone) && lives(stays));
    signal(first, Signal::SIGKILL);
    daemon.wait_for("what escaped to end", |_| !lives(gone));
    daemon.until("the engine to be back", |s| {
        s["incidents"][0]["outcome"] == "recovered" && all_run(s)
    });
    assert!(lives(stays));

    // An engine takes more than it may.
    let before = pids(&daemon.status());
    std::fs::create_dir(dir.path().join("hungry")).unwrap();
    let status = daemon.until("the hungry engine to be back", |s| {
        let all = s["incidents"].as_array().unwrap();
        all.len() == 2 && all.iter().all(|i| i["outcome"] == "recovered") && all_run(s)
    });
    let incidents = status["incidents"].to_string();
    assert!(
        incidents.contains(
            "the kernel killed a process of it for want of memory: its limit of 512MiB \
             (rollout.limits.memory) was reached; raise it, or have what runs there need less"
        ),
        "{incidents}"
    );
    let after = pids(&status);
    let changed: Vec<&String> = before.keys().filter(|k| before[*k] != after[*k]).collect();
    assert_eq!(changed.len(), 1, "{before:?} {after:?}");
    assert!(changed[0].starts_with("rollout-"), "{changed:?}");
    daemon.until_step(status["step"].as_u64().unwrap() + 1);

    let left = [escaped(dir.path(), 0), escaped(dir.path(), 1)];
    assert!(left.iter().all(|pid| lives(*pid)));
    assert!(daemon.ctl(&["stop"]).status.success());
    daemon.finish();
    assert!(!left.iter().any(|pid| lives(*pid)), "{}", daemon.logs());
    let groups = groups(&daemon.state_dir());
    assert!(groups.lives().is_empty(), "{:?}", groups.lives());
    assert!(roles(&status, "agent").len() == 2);
}

/// A shell in a mount namespace in which no control groups are mounted.
fn without_groups(command: &str) -> Command {
    let script = format!("umount -R -l /sys/fs/cgroup && {command}");
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", &script]);
    shell
}

#[test]
fn limits_that_nobody_would_hold_to_are_refused_and_said_by_the_doctor() {
    if !geteuid().is_root() {
        return robust_needs::skip("nothing can be unmounted", robust_needs::ROOT);
    }
    if robust_needs::program("unshare").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = job(dir.path()).write(dir.path());
    let fix = "start robustd as a service of systemd's with `Delegate=yes` and `DelegateSubgroup=robustd`";
    let (robustd, robustctl) = (bin("robustd"), bin("robustctl"));
    let state = dir.path().join("state");
    let start = format!(
        "exec {} --job {} --state-dir {}",
        robustd.display(),
        path.display(),
        state.display()
    );
    let out = without_groups(&start).output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        said.contains("rollout.limits.memory cannot be held to: no control group can be made here")
            && said.contains(fix),
        "{said}"
    );
    assert_eq!(out.status.code(), Some(6), "{said}");
    let look = format!(
        "exec {} --state-dir {} doctor --job {} --disk-mib 0 --json",
        robustctl.display(),
        state.display(),
        path.display()
    );
    let out = without_groups(&look).output().unwrap();
    let said: Value = serde_json::from_slice(&out.stdout).unwrap();
    let check = said["checks"].as_array().unwrap().iter();
    let check = check
        .into_iter()
        .find(|c| c["name"] == "control groups")
        .unwrap();
    assert_eq!(check["verdict"], "fail", "{check}");
    assert!(check["fix"].as_str().unwrap().contains(fix), "{check}");
}
