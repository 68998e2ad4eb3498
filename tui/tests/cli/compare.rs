//! `compare`: where runs are found, and what is said where one is not.
use super::fake::{Book, running};
use super::{daemon, err, out, robustctl, run};
use robust_proto::v1;
use serde_json::Value;
use std::path::Path;
use std::process::Output;

fn book(job: &str, steps: u64, seed: u64) -> Book {
    let line = |step: u64| v1::StepLine {
        step,
        at_ms: 1_000 + step * 1_000,
        reward: step as f64,
        tokens: 10,
        seconds: 1.0,
        ..Default::default()
    };
    Book {
        status: running(),
        report: v1::Report {
            job: job.into(),
            state: "running".into(),
            steps,
            duration_s: 36.0,
            tokens: steps * 10,
            step_lines: (1..=steps).map(line).collect(),
            ..Default::default()
        },
        history: vec![v1::History {
            config: format!(r#"{{"job":{{"name":"arith","seed":{seed}}}}}"#),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn compare(dir: &Path, a: &str, b: &str) -> Output {
    run(dir, &["compare", a, b])
}

/// What is said of runs that cannot be compared, which is wrong use.
fn refused(dir: &Path, a: &str, b: &str) -> String {
    let output = compare(dir, a, b);
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert_eq!(out(&output), "");
    err(&output)
}

#[test]
fn a_running_job_is_compared_with_a_report_of_another_and_with_one_in_a_context() {
    let (one, _fake, _server) = daemon(book("one", 12, 3));
    let (two, _other_fake, _other_server) = daemon(book("two", 6, 4));
    let written = run(one.path(), &["report", "--json"]);
    let report = one.path().join("report.json");
    std::fs::write(&report, &written.stdout).unwrap();
    let settings = one.path().join("robust");
    std::fs::create_dir(&settings).unwrap();
    let contexts = format!("[other]\nstate_dir = \"{}\"\n", two.path().display());
    std::fs::write(settings.join("contexts.toml"), contexts).unwrap();

    let folder = two.path().to_str().unwrap();
    let output = compare(one.path(), report.to_str().unwrap(), folder);
    let text = out(&output);
    assert!(output.status.success(), "{}", err(&output));
    assert!(text.contains("job.seed"), "{text}");
    let speed = text.lines().find(|line| line.contains("steps per hour"));
    let speed: Vec<&str> = speed.unwrap().split_whitespace().collect();
    assert_eq!(speed[3..], ["1200.0", "600.0", "-600.0", "0.500"]);

    let output = robustctl(
        one.path(),
        &["compare", report.to_str().unwrap(), "other", "--json"],
    )
    .env("XDG_CONFIG_HOME", one.path())
    .output()
    .unwrap();
    assert!(output.status.success(), "{}", err(&output));
    let read: Value = serde_json::from_str(&out(&output)).unwrap();
    assert_eq!(read["a"]["job"], "one");
    assert_eq!(read["b"]["job"], "two");
    assert_eq!(read["common_steps"]["last"], 6);
    assert_eq!(read["job_file"][0]["b"], "4");
}

#[test]
fn a_run_that_is_not_found_is_wrong_use_and_says_what_was_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (empty, file, none) = (path("empty"), path("file.json"), path("none"));
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(&file, "{\"job\":\"a\"}").unwrap();
    let said = refused(dir.path(), &empty, &empty);
    assert!(said.contains("it has no job.json"), "{said}");
    let said = refused(dir.path(), &file, &file);
    assert!(said.contains("it has no `step_lines`"), "{said}");
    let said = refused(dir.path(), &none, &file);
    assert!(said.contains("there is no such state directory"), "{said}");
    // There is no token for it.
    let said = refused(dir.path(), "127.0.0.1:1", &file);
    assert!(said.contains("cannot read the token file"), "{said}");
    let output = robustctl(dir.path(), &["compare", "other", &file])
        .env("XDG_CONFIG_HOME", dir.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert!(
        err(&output).contains("as a context it is not known"),
        "{}",
        err(&output)
    );
}
