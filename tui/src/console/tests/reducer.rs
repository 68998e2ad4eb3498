//! Which actions follow from which events.
use super::super::act::Act;
use super::super::event::{Action, Event, Quit};
use super::super::frame;
use super::super::names::ScreenId;
use super::super::state::{Link, Settings, State};
use super::super::ui;
use super::fixtures::*;
use super::screens::screen;
use crate::format::who;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use robust_proto::v1;
use robust_shared::fault::Fault;

pub fn play(state: &mut State, events: impl IntoIterator<Item = Event>) -> Vec<Action> {
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

pub fn chosen(state: &State) -> String {
    let chosen = state.common().chosen_instance().unwrap();
    who(&chosen.role, chosen.index)
}

fn names(state: &State) -> Vec<String> {
    let common = state.common();
    common.instances().names(common.job.roles(), common.look)
}

pub fn typed(words: &str) -> Vec<Event> {
    words.chars().map(press).collect()
}

/// A frame of this size, as the runner draws one before it hands on the mouse.
pub fn draw(state: &mut State, width: u16, height: u16) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let mut drawn = None;
    terminal
        .draw(|frame| drawn = Some(frame::draw(state, frame)))
        .unwrap();
    state.set_drawn(drawn.unwrap());
}

fn mouse(kind: MouseEventKind, column: u16, row: u16) -> Event {
    Event::Mouse(MouseEvent {
        kind,
        column,
        row,
        modifiers: KeyModifiers::NONE,
    })
}

/// The left button.
pub fn click(column: u16, row: u16) -> Event {
    mouse(MouseEventKind::Down(MouseButton::Left), column, row)
}

/// The wheel, a notch down.
pub fn wheel(column: u16, row: u16) -> Event {
    mouse(MouseEventKind::ScrollDown, column, row)
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
    let [Action::Do(Act::Strike(strike))] = &actions[..] else {
        panic!("{actions:?}")
    };
    let life = strike.life.as_ref().unwrap();
    assert_eq!(
        (&strike.fault, life.role.as_str(), life.index),
        (&Fault::Kill, "rollout", 1)
    );
    assert!(state.dialog().is_none());
}

#[test]
fn enter_confirms_a_hang_and_escape_or_n_drops_it() {
    let mut state = showing(healthy());
    let _ = play(&mut state, [press('G')]);
    assert_eq!(play(&mut state, [press('H'), key(KeyCode::Esc)]), []);
    assert_eq!(play(&mut state, [press('H'), press('n')]), []);
    let actions = play(&mut state, [press('H'), key(KeyCode::Enter)]);
    assert!(
        matches!(&actions[..], [Action::Do(Act::Strike(s))] if s.fault == Fault::Hang),
        "{actions:?}"
    );
}

#[test]
fn a_dialog_blocks_every_other_key() {
    let mut state = showing(healthy());
    let _ = play(&mut state, [press('G'), press('K')]);
    let dialog = screen(&state, 80, 24);
    let others = ['q', 'j', 'g', 's', '?', 'H', 'K', 'r', 'x', '3'].map(press);
    assert_eq!(play(&mut state, others), []);
    assert_eq!(
        (screen(&state, 80, 24), chosen(&state)),
        (dialog, "agent-1".to_owned())
    );
    let _ = play(&mut state, [press('n'), press('?')]);
    assert_eq!(play(&mut state, ['k', 'K', 's'].map(press)), []);
    assert!(screen(&state, 80, 24).contains("Keys on Overview"));
    assert_eq!(chosen(&state), "agent-1");
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
    assert!(state.dialog().is_none());
    assert!(
        state
            .notice()
            .unwrap()
            .text
            .contains("trainer-0 was replaced meanwhile")
    );
}

#[test]
fn nothing_is_injected_while_the_daemon_is_lost() {
    let mut state = showing(healthy());
    assert_eq!(
        play(&mut state, [press('G'), press('K'), lost(1), press('y')]),
        []
    );
    assert!(state.notice().unwrap().text.contains("not reachable"));
    assert_eq!(play(&mut state, [press('K'), press('s')]), []);
    assert!(state.dialog().is_none());
}

#[test]
fn a_lost_daemon_is_tried_again_and_its_last_data_stays() {
    let mut state = showing(healthy());
    let _ = state.handle(NOW, lost(1));
    assert!(matches!(state.common().link, Link::Lost { since: NOW, .. }));
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
        matches!(state.common().link, Link::Lost { since: NOW, .. }),
        "the first loss counts"
    );
    assert_eq!(
        (
            state.common().job.status().unwrap().step,
            state.common().data_age_ms()
        ),
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
    assert_eq!(state.common().link, Link::Live);
    let seqs: Vec<u64> = state.common().job.events().iter().map(|e| e.seq).collect();
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
    assert!(state.common().job.events().is_empty());
}

#[test]
fn a_daemon_that_is_just_starting_again_keeps_journal_and_selection() {
    let mut state = showing(healthy());
    let _ = play(&mut state, ['j', 'j'].map(press));
    let mut blank = healthy();
    (blank.state, blank.started_ms) = ("starting".into(), NOW);
    blank.roles.clear();
    assert_eq!(play(&mut state, [over(1, blank), over(1, healthy())]), []);
    assert_eq!(
        (state.common().job.events().len(), chosen(&state)),
        (7, "rollout-0".to_owned())
    );
}

#[test]
fn a_connection_that_falls_silent_counts_as_lost() {
    let mut state = showing(healthy());
    assert_eq!(state.handle(NOW + 10_000, Event::Tick), []);
    assert_eq!(state.common().link, Link::Live);
    let _ = state.handle(NOW + 10_250, Event::Tick);
    assert!(matches!(state.common().link, Link::Lost { .. }));
}

#[test]
fn the_selection_stays_with_its_instance_when_rows_move() {
    let mut state = showing(healthy());
    let _ = play(&mut state, ['j', 'j'].map(press));
    let mut status = healthy();
    status.roles.remove(0);
    let _ = play(&mut state, [over(1, status)]);
    assert_eq!(chosen(&state), "rollout-0");
}

/// With `--exit-when-done`.
fn leaving() -> Settings {
    Settings {
        exit_when_done: true,
        ..settings()
    }
}

#[test]
fn when_the_job_is_over_the_console_stays_unless_told_otherwise() {
    let mut done = healthy();
    done.state = "completed".into();
    let mut state = showing(healthy());
    assert_eq!(play(&mut state, [over(1, done.clone())]), []);
    assert!(state.common().job.is_over());

    let mut state = console_of(leaving());
    assert_eq!(
        play(&mut state, [over(1, done)]),
        [Action::Quit(Quit::JobOver)]
    );
}

#[test]
fn with_exit_when_done_a_daemon_that_stays_away_ends_the_console() {
    let mut state = console_of(leaving());
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
    assert!(!state.notice().unwrap().good);
    let _ = state.handle(NOW + 8_000, Event::Tick);
    assert_eq!(state.notice(), None);
}

#[test]
fn s_asks_before_it_ends_the_job() {
    let mut state = showing(healthy());
    assert_eq!(
        play(&mut state, [press('s'), press('y'), key(KeyCode::Enter)]),
        []
    );
    let _ = play(&mut state, [key(KeyCode::Backspace)]);
    let _ = play(&mut state, "arith-grpo".chars().map(press));
    let actions = play(&mut state, [key(KeyCode::Enter)]);
    assert_eq!(actions, [Action::Do(Act::Stop)]);
}

#[test]
fn every_screen_has_a_key_and_tab_goes_round() {
    let mut state = showing(healthy());
    for screen in ScreenId::ALL {
        let _ = play(&mut state, [press(screen.key())]);
        assert_eq!(state.shown(), screen);
    }
    let _ = play(&mut state, [key(KeyCode::Tab)]);
    assert_eq!(state.shown(), ScreenId::Overview);
    let _ = play(&mut state, [key(KeyCode::BackTab)]);
    assert_eq!(state.shown(), ScreenId::Time);
}

#[test]
fn a_filter_is_typed_into_the_table_and_its_keys_do_nothing_else() {
    let mut state = showing(healthy());
    assert_eq!(play(&mut state, typed("/rollout K q")), []);
    assert!(state.dialog().is_none());
    assert_eq!(names(&state), [""; 0]);
    let _ = play(&mut state, [key(KeyCode::Esc)]);
    let _ = play(&mut state, typed("/rollout 2"));
    let _ = play(&mut state, [key(KeyCode::Enter)]);
    assert_eq!(names(&state), ["rollout-2"]);
    let _ = play(&mut state, [key(KeyCode::Esc)]);
    assert_eq!(names(&state).len(), 7);
}

#[test]
fn the_mouse_changes_screens_selects_rows_and_sorts() {
    let mut state = showing(healthy());
    draw(&mut state, 120, 40);
    // Row 15 holds the table's heading, the rows follow.
    let instances = state.common().instances().id();
    let heading = (0..40).find(|&y| {
        matches!(
            state.common().drawn.at(4, y),
            Some(ui::Spot::Head(id, 0)) if id == instances
        )
    });
    let heading = heading.unwrap();
    let _ = play(&mut state, [click(4, heading + 3)]);
    assert_eq!(chosen(&state), "rollout-0");
    let _ = play(&mut state, [click(4, heading)]);
    assert_eq!(names(&state)[0], "agent-0");
    assert_eq!(
        chosen(&state),
        "rollout-0",
        "the selection stays with its row"
    );
    let _ = play(&mut state, [click(4, heading)]);
    assert_eq!(names(&state)[0], "trainer-1");
    let _ = play(&mut state, [wheel(9, heading + 2)]);
    assert_eq!(chosen(&state), "agent-0");
    let tab =
        (0..120).find(|&x| state.common().drawn.at(x, 0) == Some(ui::Spot::Tab(ScreenId::Nodes)));
    let _ = play(&mut state, [click(tab.unwrap() + 1, 0)]);
    assert_eq!(state.shown(), ScreenId::Nodes);
}

#[test]
fn a_dialog_is_deaf_to_the_mouse() {
    let mut state = showing(healthy());
    let _ = play(&mut state, typed("GK"));
    draw(&mut state, 80, 24);
    for y in 0..24 {
        for x in 0..80 {
            assert_eq!(play(&mut state, [click(x, y)]), []);
        }
    }
    assert_eq!(state.shown(), ScreenId::Overview);
    assert!(state.dialog().is_some());
}

#[test]
fn log_and_store_are_looked_at_only_while_they_are_shown() {
    let mut state = showing(healthy());
    assert_eq!(state.handle(NOW + 1_000, Event::Tick), []);
    let log = |who: &str| read_log(who, true);
    let phases = follow_phases(&state, 0);
    assert_eq!(play(&mut state, [press('2')]), [phases, log("trainer-0")]);
    assert_eq!(state.handle(NOW + 250, Event::Tick), [], "once a second");
    let _ = state.handle(NOW + 300, press('j'));
    assert_eq!(state.handle(NOW + 400, Event::Tick), [log("trainer-1")]);
    let left = [Action::LeavePhases, Action::ReadStore];
    assert_eq!(state.handle(NOW + 500, press('5')), left);
    let _ = state.handle(NOW + 600, press('1'));
    assert_eq!(state.handle(NOW + 9_000, Event::Tick), []);
}

fn read_log(who: &str, on_leader: bool) -> Action {
    let who = who.to_owned();
    Action::ReadLog { who, on_leader }
}

#[test]
fn the_log_of_an_instance_on_another_node_is_the_one_that_is_there() {
    let mut state = showing(on_two_nodes());
    let actions = play(&mut state, [press('2')]);
    assert!(
        actions.contains(&read_log("trainer-0", true)),
        "{actions:?}"
    );
    let _ = play(&mut state, [press('j')]);
    let elsewhere = read_log("trainer-1", false);
    assert_eq!(state.handle(NOW + 400, Event::Tick), [elsewhere]);
}

fn follow_phases(state: &State, after_ms: u64) -> Action {
    let link = state.link_no();
    Action::FollowPhases { link, after_ms }
}

#[test]
fn phases_are_followed_while_they_are_shown_and_from_where_they_were_left() {
    let mut state = showing(healthy());
    let wanted = follow_phases(&state, 0);
    assert_eq!(play(&mut state, [press('3')]), [wanted]);
    let ended = v1::PhaseSpan {
        role: "trainer".into(),
        phase: "snapshot".into(),
        started_ms: NOW - 2_000,
        ms: 500,
        incarnation: 1,
        ..Default::default()
    };
    let told = |link| Event::Phases {
        link,
        spans: vec![ended.clone()],
    };
    let link = state.link_no();
    assert_eq!(play(&mut state, [told(link)]), []);
    assert_eq!(play(&mut state, [press('1')]), [Action::LeavePhases]);
    let wanted = follow_phases(&state, NOW - 1_500);
    assert_eq!(play(&mut state, [press('2'), press('3')])[0], wanted);
    // Over the next connection they are asked for anew, once it delivers.
    let _ = play(&mut state, [lost(link)]);
    assert_eq!(play(&mut state, [press('1'), press('3')]), []);
    let again = state.handle(NOW + 500, Event::Tick);
    let [Action::Connect { link, .. }] = again[..] else {
        panic!("{again:?}");
    };
    let _ = state.handle(NOW + 600, over(link, healthy()));
    let wanted = follow_phases(&state, NOW - 1_500);
    assert_eq!(state.handle(NOW + 750, Event::Tick), [wanted]);
    assert_eq!(state.handle(NOW + 1_000, Event::Tick), []);
}

#[test]
fn what_is_recorded_has_the_phases_whatever_is_shown() {
    let records = true;
    let mut state = showing_of(
        Settings {
            records,
            ..settings()
        },
        healthy(),
    );
    let wanted = follow_phases(&state, 0);
    assert_eq!(play(&mut state, [Event::Tick]), [wanted]);
    assert_eq!(play(&mut state, [press('3'), press('1')]), []);
}

#[test]
fn the_timeline_zooms_and_scrolls_and_comes_back_to_the_present() {
    let mut state = showing(healthy());
    let axis = |state: &State| {
        let screen = screen(state, 120, 40);
        let wide = screen.lines().find(|l| l.starts_with("TIMELINE, "));
        let end = screen.lines().nth(4).and_then(|l| l.split('│').next_back());
        let end = end.and_then(|l| l.split_whitespace().last());
        (wide.unwrap().to_owned(), end.unwrap().to_owned())
    };
    let shows = |wide: &str, end: &str| (format!("TIMELINE, {wide} wide"), end.to_owned());
    let _ = play(&mut state, typed("3+"));
    assert_eq!(axis(&state), shows("1m00s", "now"));
    let _ = play(&mut state, typed("hh"));
    assert_eq!(axis(&state), shows("1m00s", "-30s"));
    let _ = play(&mut state, typed("l-"));
    assert_eq!(axis(&state), shows("2m00s", "-15s"));
    let _ = play(&mut state, typed("n"));
    assert_eq!(axis(&state), shows("2m00s", "now"));
}
