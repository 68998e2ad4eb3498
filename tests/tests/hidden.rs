//! What a program of a role that was broken into gets of the job: its own folders, and nothing of the state
//! directory, of the daemon or of the others.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};
use robust_tests::{Daemon, JobFile, bin, example, roles, torch_job, torch_python};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Looks for everything that is not its own, and writes down what it got; that it looked at all, too. `S` is the
/// state directory.
const SPY: &str = r#"
own={state}; S=${{own%/services/*}}
until test -s $own/go; do sleep 0.1; done
{{
  for f in token authority.key job.json control.sock roles.sock db logs ckpt own; do
    test -e $S/$f && echo state:$f
  done
  for f in $(cat $own/go)/engine-*; do test -e $f && echo memory:${{f##*/}}; done
  for p in $(ps -eo pid,args | grep -e "[-]-state-dir $S" -e "[-]-host-socket $S" -e "[-]-dialect" | awk '{{print $1}}'); do
    echo looked
    for f in environ mem root/$S/authority.key cwd/job.toml fd/0; do
      (: < /proc/$p/$f) && echo process:$f
    done
  done
  (echo x > $S/new) && echo writes
  echo user:$(id -u)
}} 2> /dev/null | sort -u > $own/found.new
mv $own/found.new $own/found
sleep 600
"#;

/// Engines, and a service that looks around.
fn job() -> JobFile {
    let argv: Vec<toml::Value> = ["sh", "-c", SPY].map(Into::into).into();
    JobFile::of_fixture("jobs/engines-fake.toml")
        .set("job", "steps", 1000_i64)
        .set("service.spy", "argv", argv)
        .set("service.spy", "ports", 0_i64)
}

/// What the service found, once it looked.
fn found(daemon: &mut Daemon) -> Vec<String> {
    daemon.until("engines with folders of their own", |s| {
        roles(s, "rollout").iter().all(|r| r["state"] == "running")
    });
    // Where the job's memory is can be worked out by anybody: it is told.
    let state = std::fs::canonicalize(daemon.state_dir()).unwrap();
    let memory = robustd::state::snapshot_dir(&state);
    let go = state.join("services/service-spy-0/go");
    std::fs::write(go, memory.display().to_string()).unwrap();
    let path = daemon.state_dir().join("services/service-spy-0/found");
    daemon.wait_for("what the service found", |_| path.exists());
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Trains, and nothing happens to anybody.
fn trains(daemon: &mut Daemon) {
    let status = daemon.until_step(3);
    let incidents = status["incidents"].as_array().unwrap();
    assert!(incidents.is_empty(), "{incidents:?}\n{}", daemon.logs());
    assert_eq!(roles(&status, "rollout").len(), 2);
}

/// All that the spy looks for.
const EVERYTHING: [&str; 13] = [
    "memory:engine-rollout-0",
    "process:environ",
    "process:fd/0",
    "process:mem",
    "process:root/",
    "state:authority.key",
    "state:control.sock",
    "state:db",
    "state:job.json",
    "state:logs",
    "state:own",
    "state:roles.sock",
    "writes",
];

#[test]
fn a_program_that_was_broken_into_sees_its_own_folders_alone() {
    if geteuid().is_root() && robust_needs::program("unshare").is_none() {
        return;
    }
    let engine = bin("fake-engine");
    let python = torch_python();
    let text = |name: &str| example(name).to_string_lossy().into_owned();
    let environment: Vec<toml::Value> = ["{env:TORCH_PYTHON}", "environment.py"]
        .map(Into::into)
        .into();
    let job = job()
        .set("job", "hide_state", "require")
        .set("agent.command", "argv", environment)
        .set("agent.command", "cwd", text("own_environment"))
        .set("agent.command.ready", "timeout_s", 60_i64)
        .set("agent.command.env", "PYTHONPATH", text("../python/src"));
    let env = [
        ("FAKE_ENGINE", &*engine.to_string_lossy()),
        ("TORCH_PYTHON", &*python.to_string_lossy()),
    ];
    let mut daemon = Daemon::start_unprivileged(&job, &env);
    // Its own folder lies in `services`; that the others are not there is what counts.
    assert_eq!(found(&mut daemon), ["looked", "user:1000"]);
    trains(&mut daemon);
    drop(daemon);

    // The same look, where nothing is hidden.
    let seeing = job.set("job", "hide_state", "off");
    let mut daemon = Daemon::start_unprivileged(&seeing, &env);
    let all = found(&mut daemon);
    for sought in EVERYTHING {
        assert!(
            all.iter().any(|of| of.starts_with(sought)),
            "{sought}: {all:?}"
        );
    }
}

#[test]
fn a_program_of_another_user_sees_its_own_folders_alone() {
    if !geteuid().is_root() {
        return robust_needs::skip("no other user can be played", robust_needs::ROOT);
    }
    // Another user reaches neither the folder of the test nor that of the build.
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    open(dir.path());
    let engine = dir.path().join("fake-engine");
    std::fs::copy(bin("fake-engine"), &engine).unwrap();
    open(&engine);
    let cache = dir.path().join("cache");
    let env = [
        ("FAKE_ENGINE", &*engine.to_string_lossy()),
        ("ROBUST_CACHE", &*cache.to_string_lossy()),
    ];
    // The model, too, is to be read by its engines.
    drop(Daemon::start_with(&job(), &env));
    let mut readable = Command::new("chmod");
    readable.args(["-R", "a+rX"]).arg(&cache);
    assert!(readable.status().unwrap().success());
    let job = job()
        .set("service.spy", "user", "nobody")
        .set("service.spy", "cwd", "/")
        .set("rollout.command", "user", "nobody")
        .set("rollout.command", "cwd", "/");
    let mut daemon = Daemon::start_with(&job, &env);
    assert_eq!(found(&mut daemon), ["looked", "user:65534"]);
    trains(&mut daemon);
}

#[test]
fn a_job_that_wants_it_hidden_where_it_cannot_be_is_told_what_to_do() {
    if !geteuid().is_root() {
        return robust_needs::skip("only from root nothing can be hidden", robust_needs::ROOT);
    }
    let engine = bin("fake-engine");
    let job = job().set("job", "hide_state", "require");
    let daemon = Daemon::start_with(&job, &[("FAKE_ENGINE", &engine.to_string_lossy())]);
    let log = daemon.state_dir().join("logs/service-spy-0.log");
    daemon.wait_for("the service's refusal", |_| {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.contains("root sees everything: it has to name another user")
            && text.contains("as root name a `user` in the command's table")
    });
}

#[test]
fn ranks_go_on_from_their_snapshots_where_all_but_those_is_hidden() {
    if geteuid().is_root() && robust_needs::program("unshare").is_none() {
        return;
    }
    let job = torch_job()
        .set("job", "hide_state", "require")
        .set("job", "steps", 1000_i64);
    let python = torch_python();
    let mut daemon =
        Daemon::start_unprivileged(&job, &[("TORCH_PYTHON", &*python.to_string_lossy())]);
    let status = daemon.until_step(2);
    let log = std::fs::read_to_string(daemon.state_dir().join("logs/trainer-0.log")).unwrap();
    assert!(log.contains("state_hidden=true"), "{log}");
    let rank = roles(&status, "trainer")[0]["pid"].as_i64().unwrap();
    let rank = Pid::from_raw(i32::try_from(rank).unwrap());
    kill(rank, Signal::SIGKILL).unwrap();
    let status = daemon.until("the gang is back", |s| {
        s["incidents"][0]["outcome"] == "recovered"
    });
    let lost = status["step"].as_u64().unwrap();
    assert!(lost >= 2, "{status}");
    daemon.until_step(lost + 1);
    assert_eq!(daemon.status()["incidents"].as_array().unwrap().len(), 1);
}

/// Says who it is and what it sees of the job, and trains.
const SPYING_RANK: &str = r#"
own={state}; S=${{own%/own/*}}; run={shm}; M=${{run%/engine-*}}
echo "rank of user $(id -u)"
for f in $S/authority.key $S/db $S/ckpt $S/logs $M/*.slot* $M/engine-trainer-*/run; do
  test $f = $run || {{ test -e $f && echo "rank sees $f"; }}
done
(: > ${{run%/*}}/given/of-its-own) 2> /dev/null && echo "rank puts a file beside what it was given"
exec "$0" train.py
"#;

#[test]
fn ranks_of_another_user_go_on_from_snapshots_and_checkpoints_that_they_do_not_see() {
    if !geteuid().is_root() {
        return robust_needs::skip("no other user can be played", robust_needs::ROOT);
    }
    if robust_needs::program("unshare").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (cache, python) = (dir.path().join("cache"), torch_python());
    let env = [
        ("TORCH_PYTHON", &*python.to_string_lossy()),
        ("ROBUST_CACHE", &*cache.to_string_lossy()),
    ];
    let argv: Vec<toml::Value> = ["sh", "-c", SPYING_RANK, "{env:TORCH_PYTHON}"]
        .map(Into::into)
        .into();
    let job = torch_job().set("job", "steps", 1000_i64);
    // The model is made, and is the user's to read.
    drop(Daemon::start_with(&job, &env));
    let mut readable = Command::new("chmod");
    readable.args(["-R", "a+rX"]).arg(&cache);
    assert!(readable.status().unwrap().success());

    for kept in ["slot", "dcp"] {
        let job = job
            .clone()
            .set("job", "hide_state", "require")
            .set("trainer.command", "argv", argv.clone())
            .set("trainer.command", "snapshot", kept)
            .set("trainer.command", "user", "nobody");
        let (real, example) = (python.canonicalize().unwrap(), example("grpo_torch"));
        let mut daemon = Daemon::start_passable(&job, &env, &[&python, &real, &example]);
        let status = daemon.until_step(2);
        let log = std::fs::read_to_string(daemon.state_dir().join("logs/trainer-0.log")).unwrap();
        let said: Vec<&str> = log.lines().filter(|l| l.starts_with("rank ")).collect();
        assert_eq!(said, ["rank of user 65534"], "{log}");
        let rank = roles(&status, "trainer")[0]["pid"].as_i64().unwrap();
        kill(Pid::from_raw(i32::try_from(rank).unwrap()), Signal::SIGKILL).unwrap();
        let status = daemon.until("the gang is back", |s| {
            s["incidents"][0]["outcome"] == "recovered"
        });
        let lost = status["step"].as_u64().unwrap();
        assert!(lost >= 2, "{status}");
        daemon.until_step(lost.max(4) + 1);
        // What is in memory is gone, and the checkpoint is left.
        daemon.end_machine();
        daemon.launch();
        let status = daemon.until("the job goes on", |s| s["step"].as_u64() > Some(lost));
        assert!(status["step"].as_u64().unwrap() >= 3, "{status}");
        let step = status["step"].as_u64().unwrap();
        daemon.until_step(step + 2);
        let own = std::fs::read_dir(daemon.state_dir().join("own/trainer-0")).unwrap();
        let left: Vec<_> = own.flatten().map(|entry| entry.file_name()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
