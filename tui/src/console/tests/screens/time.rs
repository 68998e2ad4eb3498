//! Where the time went.
use super::{check_at, check_screen, screen};
use crate::console::event::Action;
use crate::console::names::ScreenId;
use crate::console::state::State;
use crate::console::tests::fixtures::{NOW, healthy, key, press, showing, time_window};
use crossterm::event::KeyCode;

fn shown(mut status: robust_proto::v1::Status) -> State {
    status.started_ms = NOW - 3_600_000;
    let spent = status.time_spent.as_mut().unwrap();
    let five = [
        ("useful", 120.0),
        ("waits_for_data", 129.0),
        ("between", 51.0),
    ];
    let ten = [("useful", 330.0), ("waits_for_data", 258.0)];
    spent.windows = vec![
        time_window("5m", 300_000, &five),
        time_window("10m", 600_000, &ten),
        time_window("job", 3_600_000, &[("useful", 3_000.0)]),
    ];
    let mut state = showing(status);
    let _ = state.handle(NOW, press('0'));
    state
}

#[test]
fn the_time_screen() {
    check_screen("time", '0');
}

#[test]
fn the_smallest_terminal_has_room_for_it() {
    check_at("time-window", &shown(healthy()), 60, 16);
}

#[test]
fn longer_and_shorter_windows_are_a_key_away_and_what_is_missing_is_said() {
    let mut state = shown(healthy());
    let heading = |state: &State| {
        let text = screen(state, 100, 40);
        let line = text.lines().find(|l| l.starts_with("WHERE THE TIME WENT"));
        line.unwrap().to_owned()
    };
    assert!(heading(&state).contains("the last 5m00s: 40% useful"));
    let _ = state.handle(NOW, press('-'));
    assert!(heading(&state).contains("the last 10m00s: 55% useful"));
    assert!(screen(&state, 100, 40).contains("not counted"));
    // There are no thirty minutes from this daemon: the whole job stands for them.
    for _ in 0..2 {
        let _ = state.handle(NOW, press('l'));
        assert!(heading(&state).contains("the whole job, 1h00m: 83% useful"));
    }
    for _ in 0..3 {
        let _ = state.handle(NOW, press('h'));
    }
    assert!(heading(&state).contains("the last 5m00s"));
}

#[test]
fn a_slice_opens_its_stretches_and_its_incidents() {
    let mut state = showing(healthy());
    let _ = state.handle(NOW, press('0'));
    let text = screen(&state, 100, 40);
    assert!(
        text.contains("USEFUL") && text.contains("the newest first"),
        "{text}"
    );
    let _ = state.handle(NOW, key(KeyCode::Enter));
    assert_eq!(state.shown(), ScreenId::Time, "work comes of no incident");
    for _ in 0..5 {
        let _ = state.handle(NOW, press('j'));
    }
    let text = screen(&state, 100, 40);
    let incident = "1 trainer-1, exit: detect 3 ms, restart 1.34 s, reconnect 412 ms";
    assert!(
        text.contains("RESTART") && text.contains(incident),
        "{text}"
    );
    let actions = state.handle(NOW, key(KeyCode::Enter));
    assert_eq!(state.shown(), ScreenId::Incidents);
    assert!(!actions.iter().any(|a| matches!(a, Action::Do(_))));
}

#[test]
fn a_daemon_that_does_not_say_it_is_told_from_a_job_that_has_not_begun() {
    let mut status = healthy();
    status.time_spent = None;
    let mut state = showing(status.clone());
    let _ = state.handle(NOW, press('0'));
    assert!(screen(&state, 100, 40).contains("it is of an older build"));
    status.state = "starting".into();
    let mut state = showing(status);
    let _ = state.handle(NOW, press('0'));
    assert!(screen(&state, 100, 40).contains("The job has not begun"));
}
