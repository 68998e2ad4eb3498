//! Which actions follow from which events.
use super::super::event::{Action, Event, Fault, Quit};
use super::super::state::{Link, Overlay, State};
use super::fixtures::*;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

fn play(state: &mut State, events: impl IntoIterator<Item = Event>) -> Vec<Action> {
    events
        .into_iter()
        .flat_map(|e| state.handle(NOW, e))
        .collect()
}

fn lost(link: u64) -> Event {
    Event::Lost {
        link,
        reason: "nobody listens there any more".to_owned(),
    }
}

fn event(link: u64, seq: u64) -> Event {
    Event::Logged {
        link,
        event: Box::new(logged(seq, "info", "step", "", "committed")),
    }
}

#[test]
fn k_then_y_injects_exactly_once_into_the_selected_instance() {
    let mut state = showing(healthy());
    let actions = play(
        &mut state,
        ["j", "j", "j", "K", "y", "y"].map(|k| press(k.chars().next().unwrap())),
    );
    let [Action::Inject(strike)] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(
        (strike.fault, strike.role.as_str(), strike.index),
        (Fault::Kill, "rollout", 1)
    );
    assert_eq!(state.overlay, None);
}

#[test]
fn enter_confirms_a_hang_and_escape_or_n_drops_it() {
    let mut state = showing(healthy());
    assert_eq!(play(&mut state, [press('H'), key(KeyCode::Esc)]), []);
    assert_eq!(play(&mut state, [press('H'), press('n')]), []);
    let actions = play(&mut state, [press('H'), key(KeyCode::Enter)]);
    assert!(
        matches!(&actions[..], [Action::Inject(s)] if s.fault == Fault::Hang),
        "{actions:?}"
    );
}

#[test]
fn a_dialog_blocks_every_other_key() {
    let mut state = showing(healthy());
    let _ = play(&mut state, [press('K')]);
    let dialog = state.overlay.clone();
    let others = ['q', 'j', 'G', 's', '?', 'H', 'K', 'r', 'x'].map(press);
    assert_eq!(play(&mut state, others), []);
    assert_eq!((state.overlay.clone(), state.selected), (dialog, 0));
    let _ = play(&mut state, [press('n'), press('?')]);
    assert_eq!(play(&mut state, ['j', 'K', 's'].map(press)), []);
    assert_eq!((state.overlay, state.selected), (Some(Overlay::Help), 0));
}

#[test]
fn control_c_leaves_even_from_a_dialog() {
    let mut state = showing(healthy());
    let control_c = Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert_eq!(
        play(&mut state, [press('K'), control_c]),
        [Action::Quit(Quit::Asked)]
    );
}

#[test]
fn a_dialog_about_a_replaced_process_closes_without_doing_anything() {
    let mut state = showing(healthy());
    let _ = play(&mut state, [press('K')]);
    let mut status = healthy();
    status.roles[0].incarnation += 10;
    assert_eq!(play(&mut state, [over(1, status), press('y')]), []);
    assert_eq!(state.overlay, None);
    assert!(
        state
            .notice
            .unwrap()
            .text
            .contains("trainer-0 was replaced meanwhile")
    );
}

#[test]
fn nothing_is_injected_while_the_daemon_is_lost() {
    let mut state = showing(healthy());
    assert_eq!(play(&mut state, [press('K'), lost(1), press('y')]), []);
    assert_eq!(play(&mut state, [press('K'), press('s')]), []);
    assert_eq!(state.overlay, None);
}

#[test]
fn a_lost_daemon_is_tried_again_and_its_last_data_stays() {
    let mut state = showing(healthy());
    let _ = state.handle(NOW, lost(1));
    assert!(matches!(state.link, Link::Lost { since: NOW, .. }));
    assert_eq!(state.handle(NOW + 400, Event::Tick), []);
    let again = state.handle(NOW + 500, Event::Tick);
    let [Action::Connect { link, since_seq: 7 }] = again[..] else {
        panic!("{again:?}")
    };
    assert_eq!(
        state.handle(NOW + 600, Event::Tick),
        [],
        "one attempt at a time"
    );
    let _ = state.handle(NOW + 700, lost(link));
    assert!(
        matches!(state.link, Link::Lost { since: NOW, .. }),
        "the first loss counts"
    );
    assert_eq!(
        (state.status.as_ref().unwrap().step, state.data_age_ms()),
        (118, 700)
    );
}

#[test]
fn after_a_reconnect_no_event_comes_twice() {
    let mut state = showing(healthy());
    let _ = state.handle(NOW, lost(1));
    let again = state.handle(NOW + 500, Event::Tick);
    let [Action::Connect { link, .. }] = again[..] else {
        panic!("{again:?}")
    };
    let _ = play(
        &mut state,
        [over(link, healthy()), event(link, 7), event(link, 8)],
    );
    // A late delivery of the old connection.
    let _ = play(&mut state, [event(1, 9), lost(1)]);
    assert_eq!(state.link, Link::Live);
    let seqs: Vec<u64> = state.events.iter().map(|e| e.seq).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn another_job_on_the_same_socket_starts_with_an_empty_journal() {
    let mut state = showing(healthy());
    let mut status = healthy();
    status.started_ms += 5_000;
    let actions = play(&mut state, [over(1, status)]);
    assert_eq!(
        actions,
        [Action::Connect {
            link: 2,
            since_seq: 0
        }]
    );
    assert!(state.events.is_empty());
}

#[test]
fn a_daemon_that_is_just_starting_again_keeps_journal_and_selection() {
    let mut state = showing(healthy());
    let _ = play(&mut state, ['j', 'j'].map(press));
    let mut blank = healthy();
    (blank.state, blank.started_ms) = ("starting".into(), NOW);
    blank.roles.clear();
    assert_eq!(play(&mut state, [over(1, blank), over(1, healthy())]), []);
    assert_eq!((state.events.len(), state.selected), (7, 2));
}

#[test]
fn a_connection_that_falls_silent_counts_as_lost() {
    let mut state = showing(healthy());
    assert_eq!(state.handle(NOW + 10_000, Event::Tick), []);
    assert_eq!(state.link, Link::Live);
    let _ = state.handle(NOW + 10_250, Event::Tick);
    assert!(matches!(state.link, Link::Lost { .. }));
}

#[test]
fn the_selection_stays_with_its_instance_when_rows_move() {
    let mut state = showing(healthy());
    let _ = play(&mut state, ['j', 'j'].map(press));
    let mut status = healthy();
    status.roles.remove(0);
    let _ = play(&mut state, [over(1, status)]);
    assert_eq!(state.roles()[state.selected].role, "rollout");
    assert_eq!(state.roles()[state.selected].index, 0);
}

#[test]
fn when_the_job_is_over_the_console_stays_unless_told_otherwise() {
    let mut done = healthy();
    done.state = "completed".into();
    let mut state = showing(healthy());
    assert_eq!(play(&mut state, [over(1, done.clone())]), []);
    assert!(state.is_over());

    let look = state.look;
    let mut state = State::new(look, String::new(), String::new(), true);
    let _ = state.start(NOW);
    assert_eq!(
        play(&mut state, [over(1, done)]),
        [Action::Quit(Quit::JobOver)]
    );
}

#[test]
fn with_exit_when_done_a_daemon_that_stays_away_ends_the_console() {
    let look = console().look;
    let mut state = State::new(look, String::new(), String::new(), true);
    let _ = state.start(NOW);
    let _ = state.handle(NOW, lost(1));
    let actions = state.handle(NOW + 15_001, Event::Tick);
    assert!(
        matches!(&actions[..], [Action::Quit(Quit::DaemonGone(_))]),
        "{actions:?}"
    );
}

#[test]
fn an_answer_is_shown_for_a_while() {
    let mut state = showing(healthy());
    let _ = state.handle(
        NOW,
        Event::Answered(Err("refused: the job is stopping".into())),
    );
    assert!(!state.notice.as_ref().unwrap().good);
    let _ = state.handle(NOW + 8_000, Event::Tick);
    assert_eq!(state.notice, None);
}

#[test]
fn s_asks_before_it_ends_the_job() {
    let mut state = showing(healthy());
    assert_eq!(play(&mut state, [press('s')]), []);
    assert_eq!(play(&mut state, [press('y')]), [Action::Stop]);
}
