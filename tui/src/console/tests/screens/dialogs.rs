//! Dialogs over a screen.
use super::{check_at, screen};
use crate::console::event::{Action, Event};
use crate::console::tests::fixtures::{NOW, healthy, key, on_two_nodes, over, press, showing};
use crossterm::event::KeyCode;
use robust_proto::v1;

#[test]
fn a_dialog_says_what_will_happen_to_whom() {
    let mut state = showing(healthy());
    let _ = state.handle(NOW, press('j'));
    let _ = state.handle(NOW, press('K'));
    let _ = state.handle(NOW, press('t'));
    check_at("kill-trainer-dialog", &state, 80, 24);
    let _ = state.handle(NOW, key(KeyCode::Esc));
    let _ = state.handle(NOW, press('j'));
    let _ = state.handle(NOW, press('K'));
    check_at("kill-dialog", &state, 80, 24);
    let _ = state.handle(NOW, key(KeyCode::Esc));
    let _ = state.handle(NOW, press('?'));
    check_at("help", &state, 80, 24);
}

#[test]
fn a_dialog_shows_what_it_would_bring_below_what_it_means() {
    let mut state = showing(healthy());
    let _ = state.handle(NOW, press('K'));
    let actions = state.handle(NOW, over(1, healthy()));
    let [Action::Foresee(act)] = &actions[..] else {
        panic!("{actions:?}")
    };
    let lines = [
        "trainer-0: restart the trainer gang from step 12 and train step 13 again; rollouts and \
         agents go on",
        "new processes: trainer-0, trainer-1",
        "detect 0.1 s, restart 21 s, reconnect 6.0 s, all at work after 27 s",
        "the trainer stands still for 27 s, 1 step is begun again, ETTR of the next 5 min lower by 3.6 %",
    ];
    let foreseen = Event::Foreseen {
        act: Box::new(act.clone()),
        lines: lines.map(str::to_owned).into(),
    };
    let _ = state.handle(NOW, foreseen);
    check_at("kill-trainer-dialog-forecast", &state, 80, 24);
}

#[test]
fn faults_are_chosen_from_a_list_and_typed_with_what_they_take() {
    let mut state = showing(healthy());
    for key in "jjIjjj".chars() {
        let _ = state.handle(NOW, press(key));
    }
    check_at("faults", &state, 80, 24);
    let _ = state.handle(NOW, key(KeyCode::Enter));
    for key in " at updat".chars() {
        let _ = state.handle(NOW, press(key));
    }
    let _ = state.handle(NOW, key(KeyCode::Enter));
    check_at("fault-typed", &state, 80, 24);
}

#[test]
fn what_must_be_typed_is_seen_however_much_a_drain_moves() {
    let mut status = on_two_nodes();
    let one = status.roles[2].clone();
    for index in 3..300 {
        status.roles.push(v1::RoleStatus {
            index,
            ..one.clone()
        });
    }
    let mut state = showing(status);
    for key in "7Dnod".chars() {
        let _ = state.handle(NOW, press(key));
    }
    for (width, height) in [(80, 24), (60, 16)] {
        let text = screen(&state, width, height);
        for words in [
            "Drain node-a?",
            "trainer-0, ",
            "more lines",
            "Type `node-a` and Enter to drain",
            "> nod",
        ] {
            assert!(text.contains(words), "no `{words}`:\n{text}");
        }
    }
}
