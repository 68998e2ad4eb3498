//! `robustctl drill`: real jobs with planned faults, measured against each other.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_tests::{Daemon, JobFile, bin, cache, fixture, processes_naming};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A drill whose folders are made in `dir`, so that a test sees its processes and nobody else's.
fn drill(dir: &Path, file: &Path) -> Command {
    let mut command = Command::new(bin("robustctl"));
    command
        .arg("drill")
        .arg(file)
        .env("TMPDIR", dir)
        .env("ROBUST_CACHE", cache())
        .stdin(Stdio::null());
    command
}

fn errors(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

#[test]
fn the_quick_drill_strikes_both_policies_alike_and_ends_with_the_same_weights() {
    let dir = tempfile::tempdir().unwrap();
    let result = dir.path().join("drill.json");
    let out = drill(dir.path(), &fixture("drills/quick.toml"))
        .arg("--out")
        .arg(&result)
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{table}\n{}", errors(&out));
    let json: Value = serde_json::from_slice(&std::fs::read(&result).unwrap()).unwrap();
    assert_eq!(json["sync_weights_identical"], true, "I-9: {json:#}");
    assert_eq!(json["held"], true, "{json:#}");
    for run in ["none", "task", "role"] {
        for figure in [format!("ettr_{run}"), format!("time_{run}_s")] {
            let value = json[&figure].as_f64();
            assert!(value.is_some_and(|v| v > 0.0), "{figure} in {json:#}");
        }
    }
    let runs = json["series"][0]["runs"].as_array().unwrap();
    let restarts: Vec<_> = runs.iter().map(|r| r["restarts"].as_u64()).collect();
    assert_eq!(restarts, [Some(0), Some(2), Some(2)], "{json:#}");
    assert!(table.contains("done    weights = \"identical\""), "{table}");
    assert_eq!(processes_naming(dir.path()), vec![], "processes were left");
}

#[test]
fn an_interrupted_drill_leaves_no_process_and_no_folder_behind() {
    // A terminal that is closed hangs up.
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
        let dir = tempfile::tempdir().unwrap();
        let mut child = drill(dir.path(), &fixture("drills/quick.toml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begin = Instant::now();
        while processes_naming(dir.path()).len() < 4 {
            assert!(begin.elapsed() < robust_tests::PATIENCE, "no roles");
            std::thread::sleep(Duration::from_millis(20));
        }
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
        let left = processes_naming(dir.path());
        assert_eq!(left, vec![], "processes were left after {signal}");
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn a_drill_that_cannot_be_run_is_refused_before_anything_starts() {
    let dir = tempfile::tempdir().unwrap();
    let job = fixture("jobs/test.toml").canonicalize().unwrap();
    let quick = std::fs::read_to_string(fixture("drills/quick.toml")).unwrap();
    let quick = quick.replace("../jobs/test.toml", &job.to_string_lossy());
    let file = dir.path().join("drill.toml");
    for (from, to, says) in [
        ("role = \"rollout\"", "role = \"critic\"", "critic"),
        (
            "role = \"rollout\"",
            "role = \"rollout\", index = 9",
            "no rollout 9",
        ),
        ("seed = 1", "seed = 1\nsede = 1", "did you mean `seed`"),
        ("/test.toml", "/nowhere.toml", "nowhere.toml"),
    ] {
        assert!(quick.contains(from), "{from} is not in the drill");
        std::fs::write(&file, quick.replace(from, to)).unwrap();
        let out = drill(dir.path(), &file).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{}", errors(&out));
        let text = errors(&out);
        assert!(
            text.contains("drill.toml:") && text.contains(says),
            "{text}"
        );
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 1, "something was made for {to}");
    }
}

#[test]
fn a_drill_fails_and_says_what_it_found_when_an_expectation_is_false() {
    let dir = tempfile::tempdir().unwrap();
    let job = fixture("jobs/test.toml").canonicalize().unwrap();
    let text = std::fs::read_to_string(fixture("drills/kill-agent.toml")).unwrap();
    let text = text.replace("../jobs/test.toml", &job.to_string_lossy());
    // The agent alone is restarted, so the opposite of each is false.
    let text = text.replace("restart = \"role\"", "restart = \"task\"\nrestarts = 0");
    let file = dir.path().join("false.toml");
    std::fs::write(&file, text).unwrap();
    let report = dir.path().join("report.md");
    let out = drill(dir.path(), &file)
        .args(["--json", "--report"])
        .arg(&report)
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", errors(&out));
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    let verdict = |text: &str| {
        let all = json["series"][0]["expectations"].as_array().unwrap();
        all.iter().find(|e| e["text"] == text).unwrap().clone()
    };
    for (text, says) in [
        ("restart = \"task\"", "restart agent-0 only"),
        ("restarts = 0", "1 restarts"),
    ] {
        let verdict = verdict(text);
        assert_eq!(verdict["held"], false, "{verdict}");
        let found = verdict["found"].as_str().unwrap();
        assert!(found.contains(says), "{found}");
    }
    assert_eq!(verdict("job = \"goes_on\"")["held"], true, "{json:#}");
    let report = std::fs::read_to_string(&report).unwrap();
    assert!(
        report.contains("| restart = \"task\" | **not met** |"),
        "{report}"
    );
}

#[test]
fn an_attached_drill_strikes_the_running_job_which_goes_on_afterwards() {
    let mut daemon = Daemon::start(&JobFile::small().set("job", "steps", 400));
    let before = daemon.until_step(1);
    let file = fixture("drills/kill-rollout.toml");
    let out = daemon.ctl(&["drill", "--attach", "--json", &file.to_string_lossy()]);
    assert!(out.status.success(), "{}\n{}", errors(&out), daemon.logs());
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(json["held"], true, "{json:#}");
    let series = &json["series"][0];
    assert_eq!(series["runs"][0]["restarts"], 1, "{json:#}");
    let step = before["step"].as_u64().unwrap();
    let after = daemon.until_step(step + 4);
    assert_eq!(after["state"], "running");
    assert_eq!(after["incidents"].as_array().unwrap().len(), 1);
}
