#![allow(clippy::unwrap_used)]
use super::comparison::Comparison;
use super::row::{Row, Unit};
use super::{Side, file, text};
use crate::paint::Paint;
use robust_proto::v1;
use robust_shared::core::{Action, Plan};
use robust_shared::ids::{InstanceId, Role, Step};
use serde_json::Value;
use std::time::Duration;

fn line(step: u64, reward: f64) -> v1::StepLine {
    v1::StepLine {
        step,
        at_ms: 1_000 + step * 2_000,
        reward,
        tokens: 100,
        seconds: 2.0,
        ..Default::default()
    }
}

fn plan(action: Action, role: Role) -> String {
    let plan = Plan {
        action,
        who: InstanceId { role, index: 0 },
        committed: Step(3),
        is_silent: false,
        wait: Duration::ZERO,
        why: "the policy is `task`".to_owned(),
        moves: Vec::new(),
    };
    plan.to_string()
}

fn incident(role: &str, detect_ms: f64, action: Action) -> v1::Incident {
    v1::Incident {
        role: role.to_owned(),
        rule: "exit".to_owned(),
        plan: plan(action, role.parse().unwrap()),
        detect_ms,
        outcome: "recovered".to_owned(),
        ..Default::default()
    }
}

fn side(name: &str, steps: u64) -> Side {
    let slice = |name: &str, seconds| v1::TimeSlice {
        name: name.to_owned(),
        seconds,
    };
    Side {
        name: name.to_owned(),
        report: v1::Report {
            job: "arith".to_owned(),
            mode: "async".to_owned(),
            policy: "role".to_owned(),
            state: "completed".to_owned(),
            steps,
            duration_s: 100.0,
            ettr: 0.8,
            goodput: 0.75,
            tokens: steps * 100,
            trajectories: steps * 8,
            trajectories_set_aside: Some(2),
            step_lines: (1..=steps).map(|step| line(step, 0.5)).collect(),
            time_spent: Some(v1::TimeSpent {
                windows: vec![v1::TimeWindow {
                    name: "job".to_owned(),
                    from_ms: 0,
                    to_ms: 100_000,
                    slices: vec![slice("useful", 80.0), slice("detect", 5.0)],
                }],
                stretches: Vec::new(),
            }),
            history: Some(v1::History {
                config: r#"{"job":{"name":"arith","seed":3},"data":{"mix":[1,2]}}"#.to_owned(),
                ..Default::default()
            }),
            ..Default::default()
        },
    }
}

fn row<'a>(comparison: &'a Comparison, section: &str, name: &str) -> &'a Row {
    let mut sections = comparison.sections.iter();
    let found = sections.find(|s| s.name == section).unwrap();
    found.rows.iter().find(|row| row.name == name).unwrap()
}

fn pair(row: &Row) -> (Option<f64>, Option<f64>) {
    (row.a, row.b)
}

#[test]
fn a_figure_of_both_runs_has_a_difference_and_a_ratio_where_they_mean_anything() {
    let of = |a, b| {
        let row = Row::new("figure", Unit::Value, a, b);
        (row.difference, row.ratio)
    };
    assert_eq!(of(Some(2.0), Some(3.0)), (Some(1.0), Some(1.5)));
    assert_eq!(of(Some(-2.0), Some(-1.0)), (Some(1.0), Some(0.5)));
    assert_eq!(of(Some(0.0), Some(3.0)), (Some(3.0), None));
    assert_eq!(of(Some(-1.0), Some(3.0)), (Some(4.0), None));
    assert_eq!(of(None, Some(3.0)), (None, None));
    assert_eq!(of(Some(f64::NAN), Some(3.0)), (None, None));
}

#[test]
fn speed_and_lost_time_stand_side_by_side() {
    let (a, b) = (side("one", 10), side("two", 20));
    let told = Comparison::of(&a, &b, 20);
    let speed = row(&told, "run", "steps per hour");
    assert_eq!((speed.a, speed.ratio), (Some(360.0), Some(2.0)));
    let tokens = row(&told, "run", "tokens per second");
    assert_eq!(pair(tokens), (Some(10.0), Some(20.0)));
    assert_eq!(pair(row(&told, "time", "detect")), (Some(5.0), Some(5.0)));
    assert_eq!(row(&told, "time_share", "useful").a, Some(0.8));
    assert!(told.notes.is_empty(), "{:?}", told.notes);
}

#[test]
fn what_a_run_does_not_tell_is_none_and_what_it_had_none_of_is_zero() {
    let (a, mut b) = (side("one", 10), side("two", 10));
    let slices = &mut b.report.time_spent.as_mut().unwrap().windows[0].slices;
    slices[1].name = "waits_for_data".to_owned();
    let told = Comparison::of(&a, &b, 20);
    assert_eq!(pair(row(&told, "time", "detect")), (Some(5.0), Some(0.0)));
    assert_eq!(
        pair(row(&told, "time", "waits for data")),
        (Some(0.0), Some(5.0))
    );
    b.report.time_spent = None;
    b.report.trajectories_set_aside = None;
    b.report.tokens = 0;
    b.report.history = None;
    let told = Comparison::of(&a, &b, 20);
    assert_eq!(pair(row(&told, "time", "detect")), (Some(5.0), None));
    assert_eq!(
        pair(row(&told, "trajectories", "set aside")),
        (Some(2.0), None)
    );
    assert_eq!(row(&told, "run", "tokens per second").b, None);
    assert_eq!(told.job_file, None);
    let notes = told.notes.join("\n");
    assert!(
        notes.contains("B does not say what its time went to"),
        "{notes}"
    );
    assert!(notes.contains("B does not say its job file"), "{notes}");
    assert!(!notes.contains("A "), "{notes}");
}

#[test]
fn training_is_compared_at_the_steps_that_both_have() {
    let (mut a, mut b) = (side("one", 10), side("two", 6));
    for line in &mut a.report.step_lines {
        line.reward = line.step as f64;
    }
    // Its first steps are too old to be told; step 4 went astray; only it says an entropy.
    b.report.step_lines.drain(..2);
    b.report.step_lines[1].reward = f64::NAN;
    b.report.step_lines[3].entropy = Some(1.5);
    let told = Comparison::of(&a, &b, 3);
    let common = told.common_steps.as_ref().unwrap();
    let steps = (common.steps, common.from, common.last, common.averaged);
    assert_eq!(steps, (4, 4, 6, 3));
    let last = row(&told, "at_last_common_step", "reward");
    assert_eq!(pair(last), (Some(6.0), Some(0.5)));
    // Of 4, 5 and 6 the first is not told by both.
    let mean = row(&told, "mean_of_last_common_steps", "reward");
    assert_eq!(pair(mean), (Some(5.5), Some(0.5)));
    let entropy = row(&told, "mean_of_last_common_steps", "entropy");
    assert_eq!(pair(entropy), (None, Some(1.5)));
    assert!(
        told.notes[0].starts_with("Steps of B whose reward"),
        "{:?}",
        told.notes
    );
    b.report.step_lines.clear();
    let told = Comparison::of(&a, &b, 3);
    assert_eq!(told.common_steps, None);
    let note = told.notes.last().unwrap();
    assert!(note.contains("A has steps 1 to 10, B has none"), "{note}");
    let none = "B tells none of its 6 steps one by one.";
    assert!(
        told.notes.iter().any(|note| note == none),
        "{:?}",
        told.notes
    );
}

#[test]
fn a_report_that_tells_only_its_newest_steps_says_so() {
    // As one that `report --json` wrote of a long run.
    let (mut a, b) = (side("one", 30), side("two", 10));
    a.report.step_lines.drain(..20);
    let told = Comparison::of(&a, &b, 20);
    assert_eq!(told.common_steps, None);
    let expected = [
        "A tells the last 10 of its 30 steps one by one.",
        "Training is not compared: they have no step that both tell. A has steps 21 to 30, B has steps 1 to 10.",
    ];
    assert_eq!(told.notes, expected);
}

#[test]
fn incidents_are_told_by_role_rule_and_cause_with_medians_of_those_that_recovered() {
    let (mut a, mut b) = (side("one", 10), side("two", 10));
    let died = |words: &str, fingerprint: &str, detect_ms| v1::Incident {
        cause: Some(v1::Cause {
            fingerprint: fingerprint.to_owned(),
            words: words.to_owned(),
            count: 1,
        }),
        ..incident("rollout", detect_ms, Action::RestartInstance)
    };
    let failed = v1::Incident {
        outcome: "failed".to_owned(),
        ..died("port 1 in use", "aa", 9_000.0)
    };
    a.report.incidents = vec![
        died("port 1 in use", "aa", 100.0),
        died("port 2 in use", "aa", 300.0),
        failed,
        incident("rollout", 50.0, Action::RestartInstance),
    ];
    b.report.incidents = vec![died("port 3 in use", "aa", 200.0)];
    b.report.incidents_total = 7;
    let told = Comparison::of(&a, &b, 20);
    let shown: Vec<_> = told
        .incidents
        .iter()
        .map(|group| (group.cause.as_deref(), pair(&group.rows[0])))
        .collect();
    let expected = [
        (None, (Some(1.0), Some(0.0))),
        (Some("port 1 in use"), (Some(3.0), Some(1.0))),
    ];
    assert_eq!(shown, expected);
    let detect = &told.incidents[1].rows[1];
    // Of an even number what is between the two in the middle.
    assert_eq!(pair(detect), (Some(0.2), Some(0.2)));
    let total = row(&told, "incidents", "in all");
    assert_eq!(pair(total), (Some(4.0), Some(7.0)));
    assert!(
        told.notes[0].contains("those of the last 1."),
        "{:?}",
        told.notes
    );
}

#[test]
fn restarts_are_told_by_what_the_plans_restart() {
    let (mut a, b) = (side("one", 10), side("two", 10));
    let follows = v1::Incident {
        under: 1,
        ..incident("trainer", 1.0, Action::RestartGang)
    };
    a.report.incidents = vec![
        incident("trainer", 1.0, Action::RestartGang),
        follows,
        incident("trainer", 1.0, Action::RestartTask),
        incident("rollout", 1.0, Action::RestartInstance),
        incident("agent", 1.0, Action::RestartInstance),
        incident("agent", 1.0, Action::FailJob),
    ];
    a.report.restarts_planned = Some(3);
    let told = Comparison::of(&a, &b, 20);
    let of = |name: &str| pair(row(&told, "restarts", name));
    assert_eq!(of("one instance"), (Some(2.0), Some(0.0)));
    assert_eq!(of("the trainer gang"), (Some(1.0), Some(0.0)));
    assert_eq!(of("the whole task"), (Some(1.0), Some(0.0)));
    assert_eq!(of("planned, by instances"), (Some(3.0), None));
}

#[test]
fn keys_of_the_job_files_that_differ_are_told_with_both_values() {
    let (a, mut b) = (side("one", 10), side("two", 10));
    let same = Comparison::of(&a, &b, 20);
    assert_eq!(same.job_file, Some(Vec::new()));
    let shown = text::of(&same, Paint::plain());
    assert!(shown.contains("The job files are the same."), "{shown}");
    let history = b.report.history.as_mut().unwrap();
    history.config = r#"{"job":{"name":"arith","seed":4,"steps":7},"data":{"mix":[1,2]}}"#.into();
    let told = Comparison::of(&a, &b, 20);
    let keys: Vec<_> = told.job_file.as_ref().unwrap().iter().collect();
    let values: Vec<_> = keys
        .iter()
        .map(|k| (k.key.as_str(), k.a.as_deref(), k.b.as_deref()))
        .collect();
    assert_eq!(
        values,
        [
            ("job.seed", Some("3"), Some("4")),
            ("job.steps", None, Some("7"))
        ]
    );
    let shown = text::of(&told, Paint::plain());
    assert!(shown.contains("(not set)"), "{shown}");
}

#[test]
fn the_text_has_eighty_columns_and_says_what_is_not_told() {
    let (mut a, mut b) = (side("runs/one", 10), side("runs/two", 123_456));
    a.report.incidents = vec![v1::Incident {
        cause: Some(v1::Cause {
            fingerprint: "aa".to_owned(),
            words: "exit code 1: a very long story of what went wrong in it ".repeat(3),
            count: 1,
        }),
        ..incident("rollout", 111.0, Action::RestartInstance)
    }];
    b.report.trajectories_set_aside = None;
    b.report.reason = "a reason that is told at length, ".repeat(5);
    let shown = text::of(&Comparison::of(&a, &b, 20), Paint::plain());
    for line in shown.lines() {
        assert!(line.chars().count() <= 80, "{line:?} of\n{shown}");
    }
    let line = |name: &str| {
        let found = shown
            .lines()
            .find(|line| line.trim_start().starts_with(name));
        found
            .unwrap()
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(line("set aside"), "set aside 2 - - -");
    assert_eq!(
        line("steps per hour"),
        "steps per hour 360.0 4444416.0 +4444056.0 12345.600"
    );
    assert_eq!(line("detect, median"), "detect, median 111 ms - - -");
    assert_eq!(line("ETTR"), "ETTR 0.800 0.800 0.000 1.000");
}

#[test]
fn a_report_that_was_written_down_is_read_back_also_where_a_figure_is_no_number() {
    let mut side = side("one", 3);
    side.report.step_lines[1].loss = f64::NAN;
    side.report.step_lines[2].kl = Some(0.25);
    let text = serde_json::to_vec(&side.report).unwrap();
    let read = file::report(&text).unwrap();
    assert!(read.step_lines[1].loss.is_nan());
    // What is no number equals nothing.
    let mut lines = read.step_lines.clone();
    lines[1].loss = 0.0;
    side.report.step_lines[1].loss = 0.0;
    assert_eq!(lines, side.report.step_lines);
    assert_eq!(read.time_spent, side.report.time_spent);
    assert_eq!(read.restarts_planned, None);
    for wrong in ["", "[]", "{}", r#"{"step_lines":[]}"#, r#"{"job":"a"}"#] {
        assert!(file::report(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn a_program_reads_figures_that_are_not_told_as_null() {
    let (a, mut b) = (side("one", 10), side("two", 10));
    b.report.trajectories_set_aside = None;
    let value = serde_json::to_value(Comparison::of(&a, &b, 20)).unwrap();
    let sections = value["sections"].as_array().unwrap().iter();
    let mut rows = sections.flat_map(|section| section["rows"].as_array().unwrap());
    let aside = rows.find(|row| row["name"] == "set aside").unwrap();
    assert_eq!(
        (&aside["a"], &aside["b"]),
        (&Value::from(2.0), &Value::Null)
    );
    assert_eq!(aside["unit"], "count");
    assert_eq!(value["common_steps"]["last"], 10);
    assert_eq!(value["a"]["name"], "one");
}
