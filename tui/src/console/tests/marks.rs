//! Rows that are marked, and what is done with all of them.
use super::super::act::{Act, Several, Whole};
use super::super::event::{Action, Asked, Event};
use super::super::several::Answers;
use super::super::state::{Settings, State};
use super::fixtures::*;
use super::reducer::{draw, play, typed};
use super::screens::{check_at, screen};
use crate::error::CliError;
use crossterm::event::KeyCode;
use robust_shared::fault::Fault;

fn several(actions: &[Action]) -> &Several {
    let [Action::Do(Act::Several(several))] = actions else {
        panic!("{actions:?}")
    };
    several
}

fn whom(several: &Several) -> Vec<String> {
    several.acts().iter().map(Act::whom).collect()
}

fn marked(state: &State) -> usize {
    state.screen().marked(state.common())
}

#[test]
fn what_is_marked_is_seen_and_counted_and_killed_after_one_question() {
    let mut state = showing(healthy());
    // Space goes on to the next row.
    let _ = play(&mut state, typed("2jj  j "));
    assert_eq!(marked(&state), 3);
    check_at("marked", &state, 80, 24);
    let _ = play(&mut state, typed("K"));
    check_at("marked-kill", &state, 80, 24);
    assert_eq!(
        play(&mut state, [over(1, healthy())]),
        [],
        "no forecast is asked for"
    );
    let actions = play(&mut state, [press('y')]);
    let kills = several(&actions);
    assert_eq!(whom(kills), ["rollout-0", "rollout-1", "agent-0"]);
    let is_kill =
        |act: &Act| matches!(act, Act::Strike(s) if s.fault == Fault::Kill && s.life.is_some());
    assert!(kills.acts().iter().all(is_kill));
    assert_eq!(marked(&state), 3, "they stay marked");
}

#[test]
fn marks_go_with_the_name_and_escape_ends_them_and_who_is_gone_has_none() {
    let mut state = showing(healthy());
    let _ = play(&mut state, typed("2jj "));
    let mut status = healthy();
    status.roles.reverse();
    let _ = play(&mut state, [over(1, status.clone())]);
    assert_eq!(marked(&state), 1);
    let actions = play(&mut state, typed("Ry"));
    let rollout = Whole::Instance {
        role: "rollout".into(),
        index: 0,
    };
    assert_eq!(
        actions,
        [Action::Do(Act::Restart(rollout))],
        "one is no several"
    );
    let _ = play(&mut state, [press(' ')]);
    assert_eq!(marked(&state), 2);
    status
        .roles
        .retain(|r| (r.role.as_str(), r.index) != ("rollout", 0));
    let _ = play(&mut state, [over(1, status)]);
    assert_eq!(marked(&state), 1);
    assert_eq!(play(&mut state, [key(KeyCode::Esc)]), []);
    assert_eq!(marked(&state), 0);
}

#[test]
fn all_that_are_shown_are_marked_with_one_key_and_a_gang_is_restarted_once() {
    let mut state = showing(healthy());
    let _ = play(&mut state, typed("2/roll"));
    let _ = play(&mut state, [key(KeyCode::Enter), press('a')]);
    assert_eq!(marked(&state), 3);
    // The first Esc unmarks, the second ends the filter.
    let _ = play(
        &mut state,
        [key(KeyCode::Esc), key(KeyCode::Esc), press('a')],
    );
    assert_eq!(marked(&state), 7);
    let _ = play(&mut state, typed("Rtrainer"));
    let text = screen(&state, 80, 60);
    assert!(text.contains("Restart 6 instances?"), "{text}");
    let actions = play(&mut state, [key(KeyCode::Enter)]);
    let expected = [
        "trainer-0",
        "rollout-0",
        "rollout-1",
        "rollout-2",
        "agent-0",
        "agent-1",
    ];
    assert_eq!(whom(several(&actions)), expected);
}

#[test]
fn a_typed_fault_strikes_all_that_are_marked_and_one_that_befalls_not_all_is_no_choice() {
    let mut state = showing(healthy());
    let _ = play(&mut state, typed("2jj  I"));
    let text = screen(&state, 80, 60);
    assert!(text.contains("A fault for 2 instances"), "{text}");
    assert!(
        text.contains("stall-network") && !text.contains("hang-tool"),
        "{text}"
    );
    let _ = play(&mut state, [key(KeyCode::Enter), key(KeyCode::Enter)]);
    let actions = play(&mut state, [press('y')]);
    assert_eq!(whom(several(&actions)), ["rollout-0", "rollout-1"]);
    let _ = play(&mut state, typed("GI"));
    assert!(screen(&state, 80, 60).contains("A fault for 2 instances"));
    let _ = play(&mut state, [key(KeyCode::Esc), press(' '), press('I')]);
    let text = screen(&state, 80, 60);
    assert!(text.contains("A fault for 3 instances"), "{text}");
    assert!(
        !text.contains("stall-network") && !text.contains("hang-tool"),
        "{text}"
    );
}

#[test]
fn marked_engines_leave_traffic_together_and_several_are_looked_into() {
    let mut state = showing(healthy());
    let mut status = healthy();
    status.roles[3].quarantined = true;
    let _ = play(&mut state, [over(1, status)]);
    let _ = play(&mut state, typed("2jj   "));
    let actions = play(&mut state, typed("Qy"));
    // The one that is out of it already is not asked for.
    assert_eq!(whom(several(&actions)), ["rollout-0", "rollout-2"]);
    let of = |index| ("rollout".to_owned(), index);
    let actions = play(&mut state, [press('i')]);
    let asked = Asked::InsideOf(vec![of(0), of(1), of(2)]);
    assert_eq!(actions, [Action::LookInside(asked)]);
    assert!(screen(&state, 80, 24).contains("Inside of 3 instances"));
}

#[test]
fn a_console_that_only_reads_marks_and_does_nothing_with_it() {
    let read_only = true;
    let of = Settings {
        read_only,
        ..settings()
    };
    let mut state = showing_of(of, healthy());
    let actions = play(&mut state, typed("2aKy"));
    assert!(!actions.iter().any(|a| matches!(a, Action::Do(_))));
    assert!(state.dialog().is_none() && marked(&state) == 7);
    assert!(state.notice().unwrap().text.contains("only reads"));
}

#[test]
fn marked_nodes_are_cordoned_and_drained_together() {
    let mut state = showing(on_two_nodes());
    let _ = play(&mut state, typed("7a"));
    assert_eq!(marked(&state), 2);
    check_at("marked-nodes", &state, 80, 24);
    let actions = play(&mut state, typed("Cy"));
    let node = "node-a".to_owned();
    assert_eq!(
        actions,
        [Action::Do(Act::Cordon { node, out: true })],
        "the other one is"
    );
    let _ = play(&mut state, typed("Dtrainer"));
    check_at("marked-nodes-drain", &state, 80, 24);
    let actions = play(&mut state, [key(KeyCode::Enter)]);
    let names = whom(several(&actions));
    assert_eq!(names[..3], ["node-a", "node-b", "trainer-0"]);
    assert!(
        !names.contains(&"trainer-1".to_owned()),
        "a gang once: {names:?}"
    );
    assert_eq!(play(&mut state, [press('I')]), []);
    assert!(state.notice().unwrap().text.contains("strikes one node"));
}

#[test]
fn cells_are_marked_too() {
    let mut state = showing(healthy());
    let _ = play(&mut state, typed("2v"));
    draw(&mut state, 80, 24);
    let _ = play(&mut state, typed("ll "));
    let text = screen(&state, 80, 24);
    assert!(
        text.contains("1 marked (Esc)") && text.contains("\n◆rollout-0  "),
        "{text}"
    );
    let actions = play(&mut state, typed("l Hy"));
    assert_eq!(whom(several(&actions)), ["rollout-0", "rollout-1"]);
    let _ = play(&mut state, [key(KeyCode::Esc)]);
    assert_eq!(marked(&state), 0);
}

fn answered(refused: bool) -> Event {
    let mut answers = Answers::of("restart");
    answers.take("rollout-0".to_owned(), Ok(()));
    answers.take("rollout-1".to_owned(), Ok(()));
    if refused {
        let why = "agent-0 is not running (recovering); try again when it is";
        let refused = CliError::Refused(why.to_owned());
        answers.take("agent-0".to_owned(), Err(refused));
    }
    Event::AnsweredAll(Box::new(answers))
}

#[test]
fn answers_are_told_together_and_each_refusal_with_its_reason() {
    let mut state = showing(healthy());
    let _ = play(&mut state, [answered(false)]);
    assert!(state.dialog().is_none());
    let notice = state.notice().unwrap();
    assert!(
        notice.good && notice.text == "restart: all 2 were accepted",
        "{notice:?}"
    );
    let _ = play(&mut state, [answered(true)]);
    check_at("answers", &state, 80, 24);
    let _ = play(&mut state, [key(KeyCode::Enter)]);
    assert!(state.dialog().is_none());
}

#[test]
fn answers_wait_for_a_question_that_is_open() {
    let mut state = showing(healthy());
    let _ = play(&mut state, [press('G'), press('K'), answered(true)]);
    let text = screen(&state, 80, 24);
    assert!(text.contains("Kill agent-1?"), "{text}");
    let _ = play(&mut state, [press('n')]);
    let text = screen(&state, 80, 24);
    assert!(
        text.contains("agent-0: refused: agent-0 is not running"),
        "{text}"
    );
}

#[test]
fn marks_outlive_a_restart_of_the_daemon_and_go_with_the_job() {
    let mut state = showing(on_two_nodes());
    let _ = play(&mut state, typed("7a2jj  "));
    let marks = |state: &mut State| {
        let _ = play(state, [press('7')]);
        let nodes = marked(state);
        let _ = play(state, [press('2')]);
        (marked(state), nodes)
    };
    assert_eq!(marks(&mut state), (2, 2));
    // A daemon that has just started says no more than that at first.
    let mut blank = on_two_nodes();
    (blank.state, blank.started_ms) = ("starting".into(), NOW);
    blank.roles.clear();
    blank.nodes.clear();
    let _ = play(&mut state, [over(1, blank)]);
    assert_eq!(marks(&mut state), (2, 2));
    let _ = play(&mut state, [over(1, on_two_nodes())]);
    assert_eq!(marks(&mut state), (2, 2));
    let mut other = on_two_nodes();
    other.started_ms += 5_000;
    let _ = play(&mut state, [over(1, other)]);
    assert_eq!(marks(&mut state), (0, 0));
}

#[test]
fn of_marked_instances_only_engines_leave_traffic_and_come_back() {
    let mut state = showing(healthy());
    let _ = play(&mut state, typed("2jj    "));
    assert_eq!(marked(&state), 4, "three engines and an agent");
    let actions = play(&mut state, typed("Qy"));
    let engines = ["rollout-0", "rollout-1", "rollout-2"];
    assert_eq!(whom(several(&actions)), engines);
    let mut status = healthy();
    for engine in &mut status.roles[2..5] {
        engine.quarantined = true;
    }
    // The agent, which is never out of it, keeps none of them out.
    let _ = play(&mut state, [over(1, status)]);
    let actions = play(&mut state, typed("Qy"));
    let back = |act: &Act| matches!(act, Act::Traffic { out: false, .. });
    assert!(several(&actions).acts().iter().all(back));
    assert_eq!(whom(several(&actions)), engines);
    let _ = play(&mut state, [key(KeyCode::Esc)]);
    assert_eq!(play(&mut state, typed("GQ")), []);
    assert!(state.dialog().is_none());
    assert_eq!(state.notice().unwrap().text, "only engines have traffic");
}
