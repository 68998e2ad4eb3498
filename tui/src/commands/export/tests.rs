#![allow(clippy::unwrap_used)]
use super::gather::{Known, Told, later, told, told_by};
use super::{files, series};
use robust_proto::v1;

/// When the run began, Unix time in milliseconds.
const BEGIN: u64 = 1_700_000_000_000;

fn line(step: u64) -> v1::StepLine {
    v1::StepLine {
        step,
        at_ms: BEGIN + step * 2_000 - 1_000,
        reward: step as f64 / 2.0,
        tokens: 100,
        seconds: 2.0,
        ..Default::default()
    }
}

fn incident(id: u64, outcome: &str) -> v1::Incident {
    v1::Incident {
        id,
        role: "trainer".to_owned(),
        rule: "exit".to_owned(),
        reason: "killed by SIGKILL".to_owned(),
        outcome: outcome.to_owned(),
        total_ms: 1_500.0,
        at_ms: BEGIN + 2_500,
        step: 1,
        ..Default::default()
    }
}

fn report(steps: u64) -> v1::Report {
    v1::Report {
        job: "arith".to_owned(),
        state: "running".to_owned(),
        steps,
        incidents: vec![incident(4, "recovered")],
        ..Default::default()
    }
}

fn history() -> v1::History {
    let point = |second: u64| v1::CurvePoint {
        at_ms: BEGIN + second * 1_000,
        ettr_sliding: second as f64 / 4.0,
        ..Default::default()
    };
    let cause = |cause: &str, seconds, waste| v1::CauseTime {
        cause: cause.to_owned(),
        seconds,
        waste,
    };
    v1::History {
        from_ms: BEGIN,
        to_ms: BEGIN + 6_000,
        config: r#"{"job":{"name":"arith"},"data":{"mix":[1,2]}}"#.to_owned(),
        curve: [0, 3, 6].map(point).into(),
        causes: vec![
            cause("both", 6.0, false),
            cause("recovery", 2.0, false),
            cause("step_repeated", 1.0, true),
        ],
        ..Default::default()
    }
}

/// A run of so many steps and an incident, number 4.
pub fn run(steps: u64) -> Told {
    told(report(steps), (1..=steps).map(line).collect(), &history())
}

/// The same, whose last step was done again.
pub fn step_again(step: u64) -> Told {
    let mut told = run(step);
    let last = told.points.last_mut().unwrap();
    last.line.at_ms += 500;
    last.line.reward = 9.0;
    told
}

fn status() -> v1::Status {
    v1::Status {
        job: "arith".to_owned(),
        started_ms: BEGIN,
        ettr_sliding: 0.5,
        ..Default::default()
    }
}

/// What a later look says, where the daemon tells these lines and incidents.
fn look(known: &Known, lines: Vec<v1::StepLine>, incidents: Vec<v1::Incident>) -> Option<Told> {
    let report = v1::Report {
        step_lines: lines,
        incidents,
        ..report(9)
    };
    later(report, known, &status())
}

#[test]
fn the_curve_of_a_step_is_that_of_its_commit_and_the_last_one_goes_on() {
    let sliding = |told: &Told| -> Vec<_> {
        let curve = |p: &series::Point| p.curve.map(|at| at.ettr_sliding);
        told.points.iter().map(curve).collect()
    };
    let expected = [0.75, 0.75, 1.5, 1.5].map(Some);
    assert_eq!(sliding(&run(4)), expected);
    let bare = told(report(1), vec![line(1)], &v1::History::default());
    assert_eq!((sliding(&bare), bare.shares.len()), (vec![None], 0));
}

#[test]
fn shares_are_of_the_run_and_waste_lies_over_the_others() {
    let shares: Vec<f64> = run(1).shares.iter().map(|(_, share)| *share).collect();
    assert_eq!(shares, [0.75, 0.25, 0.125]);
}

#[test]
fn figures_that_nobody_told_are_no_points() {
    let silent = v1::StepLine {
        step: 3,
        seconds: 2.0,
        ..Default::default()
    };
    let point = series::Point {
        line: silent,
        curve: None,
    };
    let told: Vec<_> = series::STEPS
        .iter()
        .filter(|(_, of)| of(&point).is_some())
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(told, ["train/step_seconds", "train/weight_version"]);
}

#[test]
fn a_look_brings_what_is_new_as_long_as_the_last_step_is_the_same() {
    let known = Known::of(&run(3));
    assert!(known.is_of(&status()));
    let more = look(&known, vec![line(3), line(4), line(5)], vec![]).unwrap();
    let steps: Vec<u64> = more.points.iter().map(|p| p.line.step).collect();
    assert_eq!(steps, [4, 5]);
    let known = known.and(&more);
    assert_eq!(look(&known, vec![line(5)], vec![]).unwrap().points.len(), 0);
    // A daemon of an earlier build tells more than it was asked for.
    let whole = (1..=6).map(line).collect();
    assert_eq!(look(&known, whole, vec![]).unwrap().points.len(), 1);
}

#[test]
fn steps_that_are_done_again_and_other_jobs_are_written_anew() {
    let known = Known::of(&run(3));
    let again = step_again(3).points.pop().unwrap().line;
    assert!(look(&known, vec![again, line(4)], vec![]).is_none());
    assert!(
        look(&known, vec![line(2)], vec![]).is_none(),
        "back, and not there yet"
    );
    let other = v1::Status {
        started_ms: BEGIN + 1,
        ..status()
    };
    assert!(!known.is_of(&other));
    let nothing = Known::of(&run(0));
    let first = look(&nothing, vec![line(1)], vec![]).unwrap();
    assert_eq!(first.points.len(), 1);
}

#[test]
fn a_look_asks_for_more_where_a_step_or_the_end_of_an_incident_is_new() {
    let known = Known::of(&run(3));
    let now = |step, incidents| v1::Status {
        step,
        incidents,
        ..status()
    };
    let (old, open) = (incident(4, "recovered"), incident(5, "recovering"));
    assert!(known.has_all(&now(3, vec![old.clone(), open.clone()])));
    let waiting = vec![old.clone(), open, incident(6, "recovered")];
    assert!(known.has_all(&now(3, waiting)), "6 is written after 5");
    assert!(!known.has_all(&now(3, vec![old, incident(5, "failed")])));
    assert!(!known.has_all(&now(4, vec![])));
}

#[test]
fn a_step_of_the_same_number_that_was_done_again_is_new() {
    let shown = |at_ms| v1::Status {
        step: 3,
        last_step: Some(v1::StepLine { at_ms, ..line(3) }),
        ..status()
    };
    // The status takes the time of a step itself, a little later than the store.
    let known = Known::of(&run(3)).seen(&shown(BEGIN + 5_001));
    assert!(known.has_all(&shown(BEGIN + 5_001)));
    assert!(!known.has_all(&shown(BEGIN + 7_000)));
}

#[test]
fn a_look_takes_incidents_from_the_status_unless_some_are_too_old_for_it() {
    let known = Known::of(&run(3));
    let with = |incidents| v1::Status {
        incidents,
        ..status()
    };
    let now = with(vec![incident(4, "recovered"), incident(5, "failed")]);
    assert!(known.reaches(&now) && known.reaches(&with(vec![])));
    let more = later(told_by(&now, vec![line(3), line(4)]), &known, &now).unwrap();
    let (steps, incidents) = (more.points.len(), &more.incidents);
    assert_eq!((steps, incidents.len(), incidents[0].id), (1, 1, 5));
    assert!(!known.reaches(&with(vec![incident(6, "recovered")])));
}

#[test]
fn an_incident_is_told_once_it_is_over_and_in_order() {
    let known = Known::of(&run(1));
    let told = |incidents: Vec<v1::Incident>| {
        let more = look(&known, vec![line(1)], incidents).unwrap();
        more.incidents.iter().map(|i| i.id).collect::<Vec<_>>()
    };
    let closed = |id| incident(id, "recovered");
    let open = incident(6, "recovering");
    assert_eq!(
        told(vec![closed(4), closed(5), open.clone(), closed(7)]),
        [5]
    );
    assert_eq!(
        told(vec![closed(4), closed(5), incident(6, "failed"), closed(7)]),
        [5, 6, 7]
    );
    // No more will come of a job that is over: those after it are not held back.
    let ended = v1::Report {
        state: "stopped".to_owned(),
        incidents: vec![open, closed(7)],
        ..report(1)
    };
    let ended = super::gather::told(ended, vec![], &history());
    assert_eq!(ended.incidents.len(), 1);
}

#[test]
fn names_of_others_lead_into_no_other_folder() {
    assert_eq!(files::file_name("job.name"), "job.name");
    assert_eq!(files::file_name("../../etc/pass wd"), "_.._.._etc_pass_wd");
    assert_eq!(files::file_name(".."), "_..");
    assert_eq!(files::file_name(""), "_");
    assert_eq!(files::file_name(&"ä".repeat(300)).len(), 200);
}
