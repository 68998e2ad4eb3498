//! The report of a real run with a fault: what happened is in the page, also once the run is over.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Daemon, JobFile, bin};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A daemon that only shows, killed with this value.
struct Shown(Child);

impl Drop for Shown {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn page(daemon: &Daemon, path: &Path) -> String {
    let out = daemon.ctl(&["report", "--html", path.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}\n{}", daemon.logs());
    std::fs::read_to_string(path).unwrap()
}

/// Milliseconds that a role spent in a phase.
fn spent(report: &Value, role: &str, phase: &str) -> u64 {
    let lanes = report["history"]["lanes"].as_array().unwrap();
    let of_role = lanes.iter().filter(|lane| lane["role"] == role);
    let spent = of_role.flat_map(|lane| lane["spent"].as_array().unwrap());
    let of_phase = spent.filter(|s| s["phase"] == phase);
    of_phase.map(|s| s["ms"].as_u64().unwrap()).sum()
}

fn assert_told(report: &Value, page: &str, incident: &Value) {
    let history = &report["history"];
    assert!(!history["curve"].as_array().unwrap().is_empty(), "{report}");
    assert!(spent(report, "trainer", "update") > 0, "{history}");
    assert!(spent(report, "rollout", "generating") > 0, "{history}");
    let pulls = history["transfers"].as_array().unwrap().iter();
    let pulled: u64 = pulls
        .filter(|t| t["kind"].as_str().unwrap().starts_with("pull"))
        .map(|t| t["done"].as_u64().unwrap())
        .sum();
    assert!(pulled > 0, "{history}");
    // The built-in trainer says how its steps went.
    for line in report["step_lines"].as_array().unwrap() {
        assert!(line["entropy"].as_f64() > Some(0.0), "{line}");
        assert!(
            line["kl"].is_f64() && line["clip_fraction"].is_f64(),
            "{line}"
        );
        assert!(
            line["groups"].as_u64() >= line["flat_groups"].as_u64(),
            "{line}"
        );
        assert!(
            line["mean_length"].as_f64() <= line["longest"].as_f64(),
            "{line}"
        );
    }
    let plan = incident["plan"].as_str().unwrap();
    for part in [
        plan,
        "trainer-0: exit",
        "<svg class=\"wide\"",
        "<td>job.mode</td>",
    ] {
        assert!(page.contains(part), "{part} is not in the page");
    }
}

/// Its state directory, which nobody serves, compared with a report of it.
fn assert_is_the_same_run(daemon: &Daemon, report: &Value) {
    let file = daemon.state_dir().join("report.json");
    std::fs::write(&file, report.to_string()).unwrap();
    let folder = daemon.state_dir();
    let (folder, file) = (folder.to_str().unwrap(), file.to_str().unwrap());
    let compared = daemon.json(&["compare", folder, file]);
    assert_eq!(compared["a"]["state"], "not running", "{compared}");
    assert_eq!(compared["job_file"], serde_json::json!([]), "{compared}");
    let last = report["step_lines"].as_array().unwrap().last().unwrap();
    assert_eq!(compared["common_steps"]["last"], last["step"], "{compared}");
    let sections = compared["sections"].as_array().unwrap();
    for section in ["run", "time", "incidents", "at_last_common_step"] {
        let found = sections.iter().find(|s| s["name"] == section).unwrap();
        let rows = found["rows"].as_array().unwrap();
        assert!(!rows.is_empty(), "{section} of {compared}");
        for row in rows {
            assert_eq!(row["a"], row["b"], "{row} in {section} of {compared}");
        }
    }
    let groups = compared["incidents"].as_array().unwrap();
    let of_trainer = groups.iter().find(|group| group["role"] == "trainer");
    assert_eq!(of_trainer.unwrap()["rule"], "exit", "{compared}");
    // What was started to read it has ended.
    assert_eq!(daemon.ctl(&["status"]).status.code(), Some(3));
}

#[test]
fn a_run_with_a_fault_gives_a_page_with_the_incident_and_so_does_its_state_directory_later() {
    let mut daemon = Daemon::start(&JobFile::small().set("job", "steps", 400));
    daemon.until_step(2);
    let args = [
        "inject",
        "--wait",
        "--timeout",
        "120",
        "--kill",
        "trainer",
        "--index",
        "0",
    ];
    let incident = daemon.json(&args)["incident"].clone();
    let step = daemon.status()["step"].as_u64().unwrap();
    daemon.until_step(step + 2);
    // The phases of a page under way are told when it is whole.
    daemon.wait_for("the first pages of the history", |d| {
        spent(&d.json(&["report"]), "trainer", "update") > 0
    });
    let path = daemon.state_dir().join("report.html");
    let live = page(&daemon, &path);
    assert_told(&daemon.json(&["report"]), &live, &incident);

    assert!(daemon.ctl(&["stop"]).status.success());
    daemon.finish();
    let shown = Command::new(bin("robustd"))
        .arg("--inspect")
        .arg("--state-dir")
        .arg(daemon.state_dir())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(Shown)
        .unwrap();
    daemon.wait_for("the job to be shown", |d| {
        d.ctl(&["status"]).status.success()
    });
    let later = page(&daemon, &path);
    let report = daemon.json(&["report"]);
    assert_told(&report, &later, &incident);
    drop(shown);
    assert_is_the_same_run(&daemon, &report);
}
