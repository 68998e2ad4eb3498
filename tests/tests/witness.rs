//! Which step consumed which trajectory, as operators see it, of a real job in which an agent worker and an engine are
//! killed: every trajectory of every committed step is shown consumed by exactly that step, by both records.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Daemon, JobFile};
use serde_json::Value;
use std::collections::BTreeMap;

/// Steps after the recoveries.
const STEPS: u64 = 5;

fn kill(daemon: &Daemon, role: &str) {
    let args = [
        "inject",
        "--wait",
        "--timeout",
        "120",
        "--kill",
        role,
        "--index",
        "0",
    ];
    let incident = daemon.json(&args)["incident"].clone();
    assert_eq!(incident["outcome"], "recovered", "{incident}");
}

fn name(t: &Value) -> String {
    format!("{}.{}.{}", t["batch"], t["group"], t["member"])
}

fn number(value: &Value, key: &str) -> u64 {
    value[key]
        .as_u64()
        .unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// Every trajectory that an account of a committed step lists, by the step.
fn accounts(daemon: &Daemon, until: u64) -> BTreeMap<String, (u64, Value)> {
    let mut all = BTreeMap::new();
    for step in 1..=until {
        let account = daemon.json(&["report", "--step", &step.to_string()]);
        assert_eq!(account["disagreements"], serde_json::json!([]), "{account}");
        assert_eq!(account["counted"], true, "{account}");
        for t in account["trajectories"].as_array().unwrap() {
            let before = all.insert(name(t), (step, t.clone()));
            assert!(before.is_none(), "{t} is listed by {before:?} and {step}");
            assert_eq!(
                (&t["state"], &t["kept"]),
                (&"consumed".into(), &true.into()),
                "{t}"
            );
            let attempt = number(t, "attempt");
            assert!(1 <= attempt && attempt <= number(t, "attempts"), "{t}");
            let (oldest, newest) = (number(t, "oldest_version"), number(t, "newest_version"));
            assert!(oldest <= newest && newest < step, "{t}");
            assert_eq!(number(t, "staleness"), step - 1 - oldest, "{t}");
        }
    }
    all
}

#[test]
fn every_trajectory_of_every_step_is_shown_consumed_by_exactly_that_step_whoever_was_killed() {
    let mut daemon = Daemon::start(&JobFile::small().set("job", "steps", 400));
    daemon.until_step(2);
    kill(&daemon, "agent");
    kill(&daemon, "rollout");
    let step = daemon.until_step(4)["step"].as_u64().unwrap();
    daemon.until_step(step + STEPS);
    // One that is not consumed says so while the job runs, and so does one that is not begun.
    let far = daemon.json(&["traj", "show", "390.0.0"]);
    assert_eq!(far["witness"]["state"], "not_begun", "{far}");
    let none = daemon.ctl(&["traj", "show", "1.900.0"]);
    assert_eq!(none.status.code(), Some(2), "{none:?}");

    // A step that is committed while this reads may remove what the first ones consumed.
    assert!(daemon.ctl(&["pause"]).status.success());
    let paused = daemon.until("the job to pause", |s| s["state"] == "paused");
    let until = paused["step"].as_u64().unwrap();
    let all = accounts(&daemon, until);
    let set_back: Vec<_> = all
        .values()
        .flat_map(|(_, t)| t["setbacks"].as_array().unwrap())
        .filter(|s| s["kind"] == "agent_gone")
        .collect();
    assert!(
        !set_back.is_empty(),
        "the agent worker that was killed held trajectories"
    );
    assert!(
        set_back.iter().all(|s| s["agent"] == "agent-0"),
        "{set_back:?}"
    );
    let again = |t: &Value| number(t, "attempts") > 1;
    assert!(all.values().any(|(_, t)| again(t)));
    for (name, (step, listed)) in &all {
        let shown = daemon.json(&["traj", "show", name]);
        let w = &shown["witness"];
        assert_eq!(
            (number(w, "step"), &w["proven"]),
            (*step, &true.into()),
            "{shown}"
        );
        for same in ["attempt", "attempts", "setbacks", "incarnation"] {
            assert_eq!(w[same], listed[same], "{same} of {name}");
        }
        let versions = shown["turns"].as_array().unwrap().iter();
        let spans = versions.flat_map(|turn| turn["spans"].as_array().unwrap());
        let versions: Vec<u64> = spans.map(|span| number(span, "version")).collect();
        assert_eq!(
            versions.iter().min(),
            listed["oldest_version"].as_u64().as_ref()
        );
    }
    let text = daemon.ctl(&["report", "--step", "1"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains("the records of its trajectories agree"),
        "{text}"
    );
    let early = daemon.ctl(&["report", "--step", "399"]);
    assert_eq!(early.status.code(), Some(4), "{early:?}");
}
