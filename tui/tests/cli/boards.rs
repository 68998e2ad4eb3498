//! `export tensorboard` and `export mlflow`: what the tools themselves read of it.
use super::fake::{Book, running};
use super::{daemon, err, out, robustctl, run};
use robust_proto::v1;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// What a loaded machine has not begun by then it never does.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Reads a folder with both tools; ends with 77 where one is not installed.
const READER: &str = "tests/cli/boards.py";

fn line(step: u64) -> v1::StepLine {
    v1::StepLine {
        step,
        at_ms: 1_000 + step * 1_000,
        reward: step as f64,
        tokens: 10,
        seconds: 1.0,
        ..Default::default()
    }
}

fn book(state: &str, steps: u64) -> Book {
    let report = v1::Report {
        job: "arith".into(),
        state: state.into(),
        steps,
        step_lines: (1..=steps).map(line).collect(),
        incidents: vec![v1::Incident {
            id: 1,
            role: "trainer".into(),
            reason: "killed by SIGKILL".into(),
            outcome: "recovered".into(),
            total_ms: 1_500.0,
            at_ms: 2_500,
            ..Default::default()
        }],
        ..Default::default()
    };
    Book {
        status: v1::Status {
            state: state.into(),
            step: steps,
            ..running()
        },
        report,
        history: vec![v1::History {
            from_ms: 1_000,
            to_ms: 9_000,
            config: r#"{"job":{"name":"arith"}}"#.into(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn export(dir: &Path, board: &str, to: &Path) -> Output {
    run(dir, &["export", board, to.to_str().unwrap()])
}

/// The lines of the reward in MLflow's store, once there are any.
fn reward(to: &Path) -> Option<String> {
    let below = |folder: &Path| -> Option<Vec<PathBuf>> {
        let entries = std::fs::read_dir(folder).ok()?;
        Some(entries.flatten().map(|entry| entry.path()).collect())
    };
    let runs = below(to)?.into_iter().filter_map(|e| below(&e)).flatten();
    let mut found = runs.map(|run| run.join("metrics/train/reward"));
    found.find_map(|path| std::fs::read_to_string(path).ok())
}

#[test]
fn a_run_is_exported_and_an_export_says_where_it_is() {
    let (dir, _fake, _server) = daemon(book("completed", 3));
    let to = tempfile::tempdir().unwrap();
    let output = export(dir.path(), "tensorboard", to.path());
    assert!(output.status.success(), "{}", err(&output));
    let folder = to.path().join("arith-19700101T000001Z");
    assert_eq!(
        out(&output),
        format!(
            "arith: steps 3, incidents 1, written to {}\n",
            folder.display()
        )
    );
    assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    let output = export(dir.path(), "mlflow", to.path());
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(reward(to.path()).unwrap(), "2000 1 1\n3000 2 2\n4000 3 3\n");
    let file = to.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = export(dir.path(), "mlflow", &file);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("cannot be written"),
        "{}",
        err(&output)
    );
}

#[test]
fn an_export_that_follows_brings_the_steps_to_come_and_ends_with_the_job() {
    let (dir, fake, _server) = daemon(book("running", 2));
    let to = tempfile::tempdir().unwrap();
    let args = [
        "export",
        "mlflow",
        to.path().to_str().unwrap(),
        "--follow",
        "--interval",
        "0.05",
    ];
    let mut followed = robustctl(dir.path(), &args)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let wait_for = |lines: usize| {
        let begin = Instant::now();
        while reward(to.path()).is_none_or(|text| text.lines().count() != lines) {
            assert!(begin.elapsed() < PATIENCE, "{lines} steps never came");
            std::thread::sleep(LOOK_EVERY);
        }
    };
    wait_for(2);
    *fake.0.lock().unwrap() = book("running", 4);
    wait_for(4);
    *fake.0.lock().unwrap() = book("completed", 5);
    assert!(followed.wait().unwrap().success());
    wait_for(5);
}

#[test]
fn tensorboard_and_mlflow_read_what_was_exported() {
    let Some(python) = robust_needs::program("python3") else {
        return;
    };
    let (dir, _fake, _server) = daemon(book("completed", 3));
    let to = tempfile::tempdir().unwrap();
    for board in ["tensorboard", "mlflow"] {
        // Twice: nothing is there twice then.
        for _ in 0..2 {
            let output = export(dir.path(), board, &to.path().join(board));
            assert!(output.status.success(), "{}", err(&output));
        }
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(READER);
    let output = Command::new(python)
        .arg(script)
        .arg(to.path())
        .env("MLFLOW_ALLOW_FILE_STORE", "true")
        .output()
        .unwrap();
    if output.status.code() == Some(77) {
        let place = "where `pip install tensorboard mlflow-skinny` was run";
        return robust_needs::elsewhere("Python has not both tensorboard and mlflow", place);
    }
    assert!(output.status.success(), "{}", err(&output));
    let read: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let points = serde_json::json!([[1, 1.0], [2, 2.0], [3, 3.0]]);
    for board in ["tensorboard", "mlflow"] {
        assert_eq!(read[board]["train/reward"], points, "{board}: {read}");
        let total = serde_json::json!([[1, 1.5]]);
        assert_eq!(read[board]["incidents/total_s"], total, "{board}: {read}");
    }
    assert_eq!(read["mlflow status"], "FINISHED");
    assert_eq!(read["mlflow params"]["job.name"], "arith");
}
