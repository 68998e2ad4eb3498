//! `robustctl doctor --check-roles`: each program of a job is really started once, asked, and ended.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_tests::{JobFile, bin};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// The job with played engines of this make; more arguments are given to them. The mark is found in
/// the command lines of this test's programs alone.
fn job(dialect: &str, mark: &str, arguments: &[&str]) -> JobFile {
    let model = match dialect {
        "sglang" => "--model-path",
        _ => "--model",
    };
    let argv = ["{env:FAKE_ENGINE}", "--dialect", dialect, model, "{model}"];
    let named = [
        "--served-model-name",
        mark,
        "--host",
        "{bind}",
        "--port",
        "{port}",
    ];
    let argv = argv.iter().chain(&named).chain(arguments);
    let argv: Vec<toml::Value> = argv.map(|text| (*text).into()).collect();
    JobFile::of_fixture("jobs/engines-fake.toml")
        .set("rollout.command", "kind", dialect)
        .set("rollout.command", "argv", argv)
        .set("rollout.command.stop", "grace_s", 20.0)
}

fn doctor(job: &JobFile, folder: &Path) -> Command {
    let mut command = Command::new(bin("robustctl"));
    command
        .args([
            "doctor",
            "--json",
            "--check-roles",
            "--disk-mib",
            "0",
            "--job",
        ])
        .arg(job.write(folder))
        .arg("--worker")
        .arg(bin("robust-worker"))
        .arg("--nvml-lib=/nonexistent/libnvidia-ml.so.1")
        .env("FAKE_ENGINE", bin("fake-engine"))
        .env("TMPDIR", folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// What was found of each program, by its table: verdict, finding, fix, log.
fn tried(output: &Output) -> Vec<Value> {
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", String::from_utf8_lossy(&output.stderr));
    });
    let checks = json["checks"].as_array().unwrap().iter();
    checks
        .filter(|c| c["name"] == "started once")
        .cloned()
        .collect()
}

fn the_one(output: &Output) -> Value {
    let all = tried(output);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

fn text<'a>(check: &'a Value, key: &str) -> &'a str {
    check[key].as_str().unwrap_or_default()
}

/// Processes whose command line has this in it, with the line.
fn processes(mark: &str) -> Vec<(i32, String)> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let with_mark = all.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(mark).then_some((pid, line))
    });
    with_mark.collect()
}

fn wait_for<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{what} did not come");
}

/// The folders of the trial are gone, and so is every process of it.
fn nothing_is_left(mark: &str, folder: &Path) {
    assert_eq!(processes(mark), []);
    let left = std::fs::read_dir(folder).unwrap().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["job.toml"]);
}

#[test]
fn engines_and_services_that_work_are_told_with_their_version_and_times() {
    let service: Vec<toml::Value> = [
        "{env:FAKE_ENGINE}",
        "--dialect",
        "sglang",
        "--served-model-name",
        "mark-of-well-judge",
        "--port",
        "{port}",
    ]
    .into_iter()
    .map(Into::into)
    .collect();
    for (dialect, version) in [("vllm", "0.32.0"), ("sglang", "0.5.23")] {
        let temp = tempfile::tempdir().unwrap();
        let mark = format!("mark-of-well-{dialect}");
        let job = job(dialect, &mark, &["--enable-scale-out"])
            .set("service.judge", "argv", service.clone())
            .set("service.judge.ready", "path", "/model_info")
            .set("service.judge.health", "path", "/health")
            .set("rollout.command.env", "JUDGE", "{service.judge}");
        let output = doctor(&job, temp.path()).output().unwrap();
        let all = tried(&output);
        let verdicts: Vec<&str> = all.iter().map(|check| text(check, "verdict")).collect();
        assert_eq!(verdicts, ["ok", "ok"], "{all:?}");
        let engine = text(&all[0], "found");
        for part in [
            &format!("is {dialect} {version}, which is tested; up after"),
            ", 8 tokens in",
            ", ended in",
        ] {
            assert!(engine.contains(part), "{engine}");
        }
        let judge = text(&all[1], "found");
        assert!(judge.starts_with("service.judge: "), "{judge}");
        assert!(judge.contains("GET /health in"), "{judge}");
        nothing_is_left("mark-of-well", temp.path());
    }
}

#[test]
fn one_that_never_answers_is_given_up_when_its_time_is_over() {
    let temp = tempfile::tempdir().unwrap();
    let mark = "mark-of-never-ready";
    let job = job(
        "vllm",
        mark,
        &["--enable-scale-out", "--quirk", "never-ready"],
    )
    .set("rollout.command.ready", "timeout_s", 1.5);
    let output = doctor(&job, temp.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let check = the_one(&output);
    assert_eq!(text(&check, "verdict"), "fail");
    assert!(
        text(&check, "found").contains("not up after 2 s"),
        "{check}"
    );
    assert!(text(&check, "fix").contains("ready.timeout_s"), "{check}");
    nothing_is_left(mark, temp.path());
}

#[test]
fn one_that_lacks_an_option_is_told_which() {
    let temp = tempfile::tempdir().unwrap();
    let mark = "mark-of-no-option";
    let output = doctor(&job("vllm", mark, &[]), temp.path())
        .output()
        .unwrap();
    let check = the_one(&output);
    assert_eq!(text(&check, "verdict"), "fail");
    let fix = "add \"--enable-scale-out\" to `rollout.command.argv`";
    assert_eq!(text(&check, "fix"), fix, "{check}");
    nothing_is_left(mark, temp.path());
}

#[test]
fn one_that_says_what_is_wrong_is_told_with_the_end_of_its_log() {
    let temp = tempfile::tempdir().unwrap();
    let mark = "mark-of-bad-option";
    let job = job("sglang", mark, &["--quirk", "no-such-quirk"]);
    let check = the_one(&doctor(&job, temp.path()).output().unwrap());
    assert!(text(&check, "found").contains("ended: code"), "{check}");
    let log = check["log"].to_string();
    assert!(log.contains("no quirk is named"), "{check}");
    nothing_is_left(mark, temp.path());
}

#[test]
fn one_that_is_not_there_is_told_so() {
    let temp = tempfile::tempdir().unwrap();
    let argv: Vec<toml::Value> = ["no-such-engine", "--port", "{port}"]
        .map(Into::into)
        .into();
    let job = job("vllm", "", &[]).set("rollout.command", "argv", argv);
    let check = the_one(&doctor(&job, temp.path()).output().unwrap());
    assert_eq!(text(&check, "verdict"), "fail");
    assert!(
        text(&check, "found").contains("cannot start no-such-engine"),
        "{check}"
    );
    assert!(text(&check, "fix").contains("install it"), "{check}");
}

#[test]
fn what_needs_a_service_that_does_not_come_up_is_not_tried() {
    let temp = tempfile::tempdir().unwrap();
    let mark = "mark-of-needy";
    let argv: Vec<toml::Value> = ["no-such-judge"].map(Into::into).into();
    let job = job("vllm", mark, &["--enable-scale-out"])
        .set("service.judge", "argv", argv)
        .set("rollout.command.env", "JUDGE", "{service.judge}");
    let all = tried(&doctor(&job, temp.path()).output().unwrap());
    assert!(
        text(&all[0], "found").contains("service.judge, which it needs"),
        "{all:?}"
    );
    nothing_is_left(mark, temp.path());
}

/// A trial of an engine that starts for ever, and the pid of its program.
fn starting(mark: &str, folder: &Path) -> (Child, i32) {
    let job = job(
        "vllm",
        mark,
        &["--enable-scale-out", "--quirk", "never-ready"],
    );
    let child = doctor(&job, folder).spawn().unwrap();
    let pid = wait_for("the engine", || {
        processes(mark).first().map(|(pid, _)| *pid)
    });
    (child, pid)
}

#[test]
fn one_that_is_killed_while_it_starts_is_told_at_once() {
    let temp = tempfile::tempdir().unwrap();
    let mark = "mark-of-killed";
    let (child, engine) = starting(mark, temp.path());
    kill(Pid::from_raw(engine), Signal::SIGKILL).unwrap();
    let check = the_one(&child.wait_with_output().unwrap());
    assert_eq!(text(&check, "verdict"), "fail");
    assert!(text(&check, "found").contains("ended: SIGKILL"), "{check}");
    assert!(text(&check, "fix").contains("it was killed"), "{check}");
    nothing_is_left(mark, temp.path());
}

#[test]
fn an_interrupted_trial_leaves_nothing_behind() {
    let temp = tempfile::tempdir().unwrap();
    let mark = "mark-of-interrupted";
    let (mut child, engine) = starting(mark, temp.path());
    // The shim's line has the folder in shared memory.
    let shims = processes(&temp.path().display().to_string());
    let line = shims
        .iter()
        .find(|(_, line)| line.contains("--snapshot-dir"));
    let line = line.map(|(_, line)| line.clone()).unwrap();
    let shm = line
        .split(' ')
        .skip_while(|word| *word != "--snapshot-dir")
        .nth(1);
    let shm = Path::new(shm.unwrap()).to_owned();
    assert!(shm.is_dir());
    kill(
        Pid::from_raw(child.id().try_into().unwrap()),
        Signal::SIGINT,
    )
    .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!Path::new(&format!("/proc/{engine}")).exists());
    assert!(!shm.exists());
    nothing_is_left(mark, temp.path());
}

#[test]
fn a_robustctl_that_is_killed_takes_what_it_started_along() {
    let temp = tempfile::tempdir().unwrap();
    let mark = "mark-of-orphan";
    let (mut child, _) = starting(mark, temp.path());
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = || processes(mark).is_empty().then_some(());
    wait_for("the end of the engine", gone);
}
