//! What rings, and how often.
use super::super::event::{Action, Event, Quit};
use super::super::state::{Settings, State};
use super::fixtures::*;
use super::reducer::play;
use robust_proto::v1;

/// A console whose bell is on.
fn audible(status: v1::Status) -> State {
    let bell = true;
    showing_of(Settings { bell, ..settings() }, status)
}

fn with_alarm(since_ms: u64) -> v1::Status {
    let mut status = healthy();
    status.alarms.push(v1::Alarm {
        kind: "database full".into(),
        text: "the database's disk is full".into(),
        since_ms,
    });
    status
}

fn rings(text: &str) -> Vec<Action> {
    vec![Action::Ring(text.to_owned())]
}

#[test]
fn an_alarm_rings_once_and_again_when_it_comes_again() {
    let mut state = audible(healthy());
    let text = "arith-grpo: the database's disk is full";
    assert_eq!(play(&mut state, [over(1, with_alarm(NOW))]), rings(text));
    assert_eq!(play(&mut state, [over(1, with_alarm(NOW))]), []);
    assert_eq!(play(&mut state, [over(1, healthy())]), []);
    assert_eq!(
        play(&mut state, [over(1, with_alarm(NOW + 5))]),
        rings(text)
    );
}

#[test]
fn an_alarm_rings_again_when_it_is_about_something_else_and_not_when_its_figures_change() {
    let mut state = audible(with_alarm(NOW));
    let of = |text: &str, since_ms| {
        let mut status = with_alarm(since_ms);
        status.alarms[0].text = text.into();
        over(1, status)
    };
    let away = "node-b is away for 7 s";
    let rung = play(&mut state, [of(away, NOW)]);
    assert_eq!(rung, rings("arith-grpo: node-b is away for 7 s"));
    // As a controller says it that has just taken over.
    let later = of("node-b is away for 31 s", NOW + 24_000);
    assert_eq!(play(&mut state, [later]), []);
}

#[test]
fn what_there_is_when_the_console_is_opened_does_not_ring() {
    let mut state = audible(with_alarm(NOW));
    assert_eq!(play(&mut state, [over(1, with_alarm(NOW))]), []);
}

#[test]
fn an_incident_rings_with_its_instance_and_what_follows_from_it_does_not() {
    let mut state = audible(healthy());
    let mut status = recovering();
    let first = status.incidents.last().unwrap().id;
    let text = "arith-grpo: incident 2: trainer-1 exit (killed by SIGKILL)";
    assert_eq!(play(&mut state, [over(1, status.clone())]), rings(text));
    status.incidents.push(v1::Incident {
        id: first + 1,
        under: first,
        ..Default::default()
    });
    assert_eq!(play(&mut state, [over(1, status.clone())]), []);
    // A leader that begins knows of none for a moment.
    let mut begun = status.clone();
    begun.incidents.clear();
    assert_eq!(play(&mut state, [over(1, begun), over(1, status)]), []);
}

#[test]
fn a_job_that_fails_rings_with_its_words() {
    let mut state = audible(healthy());
    let mut status = healthy();
    (status.state, status.reason) = ("failed".into(), "no budget is left".into());
    let text = "arith-grpo: the job failed: no budget is left";
    assert_eq!(play(&mut state, [over(1, status)]), rings(text));
}

#[test]
fn a_job_that_fails_rings_before_the_console_is_left_for_it() {
    let (bell, exit_when_done) = (true, true);
    let of = Settings {
        bell,
        exit_when_done,
        ..settings()
    };
    let mut state = showing_of(of, healthy());
    let mut status = healthy();
    (status.state, status.reason) = ("failed".into(), "no budget is left".into());
    let mut wanted = rings("arith-grpo: the job failed: no budget is left");
    wanted.push(Action::Quit(Quit::JobOver));
    assert_eq!(play(&mut state, [over(1, status)]), wanted);
}

#[test]
fn another_job_rings_for_nothing_that_it_begins_with() {
    let mut state = audible(healthy());
    let mut other = with_alarm(NOW);
    other.started_ms += 1;
    let actions = play(&mut state, [over(1, other)]);
    let rung = actions.iter().any(|a| matches!(a, Action::Ring(_)));
    assert!(!rung, "{actions:?}");
}

#[test]
fn several_at_once_ring_once() {
    let mut state = audible(healthy());
    let mut status = recovering();
    status.alarms = with_alarm(NOW).alarms;
    let actions = play(&mut state, [over(1, status)]);
    let [Action::Ring(text)] = &actions[..] else {
        panic!("{actions:?}")
    };
    let both = ["the database's disk is full; ", "incident 2: trainer-1"];
    assert!(both.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn without_a_bell_nothing_rings() {
    let mut state = showing(healthy());
    assert_eq!(play(&mut state, [over(1, with_alarm(NOW))]), []);
    assert_eq!(play(&mut state, [Event::Resize]), []);
}
