//! Lives in control groups of their own: what escapes ends with them, and what takes more memory than it may is
//! ended, said so, and restarted alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use robust_tests::{Cluster, Daemon, JobFile, bin, groups, roles};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// An engine that starts a process which leaves its session and its environment behind, and once, when somebody
/// made `$0/hungry`, keeps all that it reads without an end. It starts no command that fails meanwhile: one that lives when
/// the engine becomes ready is taken for a part of it.
const ENGINE: &str = r#"
setsid env -i sleep 987654 > /dev/null 2>&1 &
echo $! > "$0/escaped-$1.new"; mv "$0/escaped-$1.new" "$0/escaped-$1"; shift
"$@" & engine=$!
until [ -d "$0/hungry" ] && [ ! -d "$0/hungry/eaten" ] && mkdir "$0/hungry/eaten" 2> /dev/null
do kill -0 $engine || exit 1; sleep 0.2; done
exec tail /dev/zero
"#;

fn job(folder: &Path) -> JobFile {
    let fake = JobFile::of_fixture("jobs/engines-fake.toml");
    let mut argv: Vec<toml::Value> = vec!["sh".into(), "-c".into(), ENGINE.into()];
    argv.push(folder.to_string_lossy().into_owned().into());
    argv.push("{index}".into());
    let program = bin("fake-engine").to_string_lossy().into_owned();
    let engine = [
        &*program,
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
    let mut daemon = Daemon::start(&job(dir.path()));
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

/// The same job on two nodes: `a` leads and trains, and the engines are on `b`.
fn on_two_nodes(folder: &Path) -> JobFile {
    let leads: &[(&str, i64)] = &[("train", 2), ("agent", 2)];
    let joins: &[(&str, i64)] = &[("rollout", 2)];
    job(folder).nodes(&[("a", leads), ("b", joins)])
}

#[test]
fn an_engine_of_a_joined_node_ends_by_its_own_limit_alone_and_its_incident_says_so() {
    if !can_limit() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(&on_two_nodes(dir.path()));
    cluster.join("b", &[]);
    cluster.leader.until_step(1);
    let status = cluster.leader.until("all roles", all_run);
    let before = pids(&status);
    let group = group_of(before["rollout-0"]);
    assert!(group.contains("/rollout-0."), "{group}");

    std::fs::create_dir(dir.path().join("hungry")).unwrap();
    let status = cluster.leader.until("the hungry engine to be back", |s| {
        s["incidents"][0]["outcome"] == "recovered" && all_run(s)
    });
    let incident = &status["incidents"][0];
    assert_eq!(incident["role"], "rollout", "{incident}");
    assert!(
        incident.to_string().contains(
            "the kernel killed a process of it for want of memory: its limit of 512MiB (rollout.limits.memory) was \
             reached; raise it, or have what runs there need less"
        ),
        "{incident}"
    );
    let after = pids(&status);
    let changed: Vec<&String> = before.keys().filter(|k| before[*k] != after[*k]).collect();
    assert_eq!(changed.len(), 1, "{before:?} {after:?}");
    assert!(changed[0].starts_with("rollout-"), "{changed:?}");
    let node = |r: &Value| r["node"] == "b";
    assert!(
        roles(&status, "rollout").iter().all(|r| node(r)),
        "{status}"
    );
    let step = status["step"].as_u64().unwrap();
    cluster.leader.until_step(step + 1);

    let left = [escaped(dir.path(), 0), escaped(dir.path(), 1)];
    assert!(left.iter().all(|pid| lives(*pid)));
    assert!(cluster.leader.ctl(&["stop"]).status.success());
    cluster.leader.finish();
    // Its job may go on: it waits for that, until it is told to end.
    cluster.strike("b", Signal::SIGTERM);
    cluster.end_of("b");
    assert!(!left.iter().any(|pid| lives(*pid)), "{}", cluster.logs());
    let groups = groups(&cluster.state_dir("b"));
    assert!(groups.lives().is_empty(), "{:?}", groups.lives());
}

#[test]
fn a_joined_node_that_can_hold_to_no_limit_starts_nothing_and_the_incident_says_why() {
    if !can_limit() || robust_needs::program("unshare").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(&on_two_nodes(dir.path()));
    cluster.join_within("b", &WITHOUT_GROUPS);
    let refusal = "rollout.limits.memory cannot be held to: no control group can be made here";
    let fix = "start robustd as a service of systemd's with `Delegate=yes` and `DelegateSubgroup=robustd`";
    cluster.until_log("b", refusal);
    let status = cluster.leader.until("the refusal to be an incident", |s| {
        s["incidents"].as_array().is_some_and(|all| !all.is_empty())
    });
    let incident = status["incidents"][0].to_string();
    assert!(
        incident.contains(refusal) && incident.contains(fix),
        "{incident}"
    );
    assert!(incident.contains("could not be started"), "{incident}");
    assert_eq!(
        escaped(dir.path(), 0),
        0,
        "an engine runs without its limit"
    );
}

/// Runs what follows in a mount namespace in which no control groups are mounted.
const WITHOUT_GROUPS: [&str; 5] = [
    "unshare",
    "--mount",
    "sh",
    "-c",
    "umount -R -l /sys/fs/cgroup && exec \"$0\" \"$@\"",
];

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
