//! What changes the job: asked first, typed where it is dangerous, done once.
use super::super::act::{Act, Strike};
use super::super::dialog::Overlay;
use super::super::event::Action;
use super::fixtures::*;
use super::reducer::{play, typed};
use crossterm::event::KeyCode;

#[test]
fn what_stops_the_whole_gang_wants_its_name_typed() {
    let mut state = showing(healthy());
    let _ = play(&mut state, [press('K')]);
    assert_eq!(play(&mut state, [press('y'), key(KeyCode::Enter)]), []);
    assert!(state.overlay.is_some(), "a yes is not enough for a trainer");
    let _ = play(&mut state, [key(KeyCode::Backspace)]);
    let mut events = typed("trainer");
    events.push(key(KeyCode::Enter));
    let actions = play(&mut state, events);
    let [Action::Do(Act::Strike(Strike { role, index: 0, .. }))] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((role.as_str(), &state.overlay), ("trainer", &None));
}

#[test]
fn under_policy_task_any_kill_wants_the_name_typed() {
    let mut status = healthy();
    status.policy = "task".into();
    let mut state = showing(status);
    assert_eq!(play(&mut state, ['G', 'K', 'y'].map(press)), []);
    let Some(Overlay::Ask(ask)) = &state.overlay else {
        panic!("{:?}", state.overlay)
    };
    assert_eq!(ask.needs.as_deref(), Some("agent"));
}

#[test]
fn a_console_that_only_reads_asks_for_nothing() {
    let mut state = showing(on_two_nodes());
    state.read_only = true;
    for keys in ["7C", "7R", "8", "1K", "H", "L", "Q", "S", "U", "s"] {
        let actions = play(&mut state, typed(keys));
        let changes = |a: &Action| matches!(a, Action::Do(_) | Action::RunDrill(_));
        assert!(!actions.iter().any(changes), "{keys}: {actions:?}");
        assert_eq!(state.overlay, None, "{keys}");
    }
    assert!(state.notice.unwrap().text.contains("only reads"));
}

#[test]
fn scaling_asks_how_many_then_shows_what_it_means() {
    let mut state = showing(healthy());
    let _ = play(&mut state, typed("jjS"));
    let _ = play(&mut state, [press('x'), key(KeyCode::Enter)]);
    let Some(Overlay::Prompt(prompt)) = &state.overlay else {
        panic!("{:?}", state.overlay)
    };
    assert_eq!(prompt.problem, "a number is wanted");
    let _ = play(
        &mut state,
        [key(KeyCode::Backspace), press('5'), key(KeyCode::Enter)],
    );
    let expected = Act::Scale {
        role: "rollout".into(),
        from: 3,
        to: 5,
    };
    assert_eq!(play(&mut state, [press('y')]), [Action::Do(expected)]);
}

#[test]
fn an_update_is_a_key_and_a_value() {
    let mut state = showing(healthy());
    let _ = play(&mut state, typed("jjUrollout.batch=8"));
    let _ = play(&mut state, [key(KeyCode::Enter)]);
    let actions = play(&mut state, [press('y')]);
    let expected = Act::Update {
        role: "rollout".into(),
        change: "rollout.batch=8".into(),
    };
    assert_eq!(actions, [Action::Do(expected)]);
}

#[test]
fn an_engine_goes_out_of_traffic_and_in_again() {
    let mut state = showing(healthy());
    let traffic = |out| {
        Action::Do(Act::Traffic {
            role: "rollout".into(),
            index: 0,
            out,
        })
    };
    assert_eq!(play(&mut state, typed("jjQy")), [traffic(true)]);
    let mut status = healthy();
    status.roles[2].quarantined = true;
    let _ = play(&mut state, [over(1, status)]);
    assert_eq!(play(&mut state, typed("Qy")), [traffic(false)]);
}

#[test]
fn nodes_are_cordoned_and_their_lost_slots_restored() {
    let mut state = showing(on_two_nodes());
    let cordon = |node: &str, out| {
        let node = node.to_owned();
        Action::Do(Act::Cordon { node, out })
    };
    assert_eq!(play(&mut state, typed("7Cy")), [cordon("node-a", true)]);
    assert_eq!(play(&mut state, typed("R")), [], "it has lost none");
    assert_eq!(play(&mut state, typed("jCy")), [cordon("node-b", false)]);
    let actions = play(&mut state, typed("Ry"));
    let [Action::Do(Act::Restore(slot))] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!((slot.node.as_str(), slot.index), ("node-b", 3));
}
