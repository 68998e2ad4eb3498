//! The palette: what it lists, what it finds, and that it does what the keys do.
use super::{check_at, screen};
use crate::console::act::{Act, Whole};
use crate::console::event::{Action, Event, Play, Playback, Quit};
use crate::console::names::ScreenId;
use crate::console::state::{Settings, State};
use crate::console::tests::fixtures::{
    NOW, healthy, key, on_two_nodes, over, press, settings, showing, showing_of,
};
use crate::console::tests::reducer::{play, typed};
use crossterm::event::KeyCode;

/// The palette with this in its line.
fn looked_for(state: &mut State, words: &str) -> String {
    let _ = play(state, [press(':')]);
    let _ = play(state, typed(words));
    screen(state, 80, 24)
}

/// The line of the palette with the selected offer.
fn selected(shown: &str) -> &str {
    let mut lines = shown.lines().filter(|line| line.contains("│ ▶ "));
    lines
        .next()
        .unwrap_or_else(|| panic!("nothing is selected in\n{shown}"))
}

#[test]
fn the_palette_lists_what_there_is_to_do() {
    let mut state = showing(on_two_nodes());
    let _ = play(&mut state, [press(':')]);
    check_at("palette", &state, 80, 24);
    let _ = play(&mut state, typed("restart"));
    check_at("palette-restart", &state, 80, 24);
    let _ = play(&mut state, typed(" no such words"));
    check_at("palette-nothing", &state, 80, 24);
}

#[test]
fn a_palette_that_can_only_look_says_why_of_each_act() {
    let read_only = true;
    let of = Settings {
        read_only,
        ..settings()
    };
    let mut state = showing_of(of, on_two_nodes());
    let _ = play(&mut state, [press(':')]);
    check_at("palette-read-only", &state, 80, 24);
}

#[test]
fn words_find_an_act_in_any_order_and_enter_asks_what_its_key_asks() {
    let mut by_key = showing(healthy());
    let _ = play(&mut by_key, typed("jjR"));
    let mut state = showing(healthy());
    let _ = play(&mut state, typed("jj"));
    let shown = looked_for(&mut state, "inst rest");
    assert!(selected(&shown).contains("R      restart "), "{shown}");
    assert_eq!(play(&mut state, [key(KeyCode::Enter)]), []);
    assert_eq!(screen(&state, 80, 24), screen(&by_key, 80, 24));
    let whole = Whole::Instance {
        role: "rollout".into(),
        index: 0,
    };
    let actions = play(&mut state, [press('y')]);
    assert_eq!(actions, [Action::Do(Act::Restart(whole))]);
}

#[test]
fn enter_goes_to_a_screen_and_leaves_the_console() {
    let mut state = showing(healthy());
    let _ = looked_for(&mut state, "incid");
    let _ = play(&mut state, [key(KeyCode::Enter)]);
    assert_eq!(state.shown(), ScreenId::Incidents);
    assert!(state.dialog().is_none());
    let _ = looked_for(&mut state, "quit");
    let actions = play(&mut state, [key(KeyCode::Enter)]);
    assert_eq!(actions, [Action::Quit(Quit::Asked)]);
}

#[test]
fn the_arrows_select_and_escape_does_nothing() {
    let mut state = showing(healthy());
    let first = looked_for(&mut state, "");
    assert!(selected(&first).contains("K      kill "), "{first}");
    let _ = play(&mut state, [key(KeyCode::Up), key(KeyCode::Down)]);
    let second = screen(&state, 80, 24);
    assert!(selected(&second).contains("H      hang "), "{second}");
    // The last one comes into sight however many there are.
    let _ = play(&mut state, std::iter::repeat_n(key(KeyCode::Down), 200));
    assert!(!selected(&screen(&state, 80, 24)).is_empty());
    assert_eq!(play(&mut state, [key(KeyCode::Esc)]), []);
    assert!(state.dialog().is_none() && state.notice().is_none());
}

#[test]
fn an_act_of_another_screen_is_found_and_says_where_it_is() {
    let mut state = showing(on_two_nodes());
    let shown = looked_for(&mut state, "cordon");
    let line = selected(&shown);
    assert!(line.contains("not here: on screen Nodes"), "{shown}");
    assert_eq!(play(&mut state, [key(KeyCode::Enter)]), []);
    assert!(state.dialog().is_none());
    let notice = state.notice().unwrap();
    assert_eq!(notice.text, "`cordon` is a key of screen Nodes");
    let _ = play(&mut state, [press('7')]);
    let shown = looked_for(&mut state, "cordon");
    assert!(
        selected(&shown).contains("cordon the selected node"),
        "{shown}"
    );
}

#[test]
fn what_cannot_be_done_now_says_so_beside_its_key_and_again_when_it_is_chosen() {
    let mut state = showing(healthy());
    let shown = looked_for(&mut state, "disarm");
    assert!(
        selected(&shown).contains("not now: no fault waits for trainer-0"),
        "{shown}"
    );
    let _ = play(&mut state, [key(KeyCode::Enter)]);
    assert_eq!(state.notice().unwrap().text, "no fault waits for trainer-0");
}

#[test]
fn a_job_that_ends_while_the_palette_is_open_is_seen_in_it() {
    let mut state = showing(healthy());
    let shown = looked_for(&mut state, "pause");
    assert!(selected(&shown).contains("pause the job"), "{shown}");
    let mut status = healthy();
    status.state = "completed".into();
    let _ = play(&mut state, [over(1, status)]);
    let shown = screen(&state, 80, 24);
    assert!(
        selected(&shown).contains("not now: the job is over"),
        "{shown}"
    );
}

#[test]
fn the_palette_offers_all_that_the_help_and_the_last_line_have_of_acts() {
    for digit in '1'..='8' {
        let mut state = showing(on_two_nodes());
        let _ = play(&mut state, [press(digit)]);
        let hints = state.screen().hints(state.common());
        let keys: Vec<_> = hints
            .own
            .concat()
            .into_iter()
            .chain(hints.most.to_vec())
            .collect();
        for of in keys.into_iter().filter(|key| key.press().is_some()) {
            let (name, word) = of.short();
            let shown = looked_for(&mut state, &format!("{word} {}", of.does()));
            let line = format!("{name:<6} {word}");
            assert!(shown.contains(&line), "{digit}: no `{line}` in\n{shown}");
            let _ = play(&mut state, [key(KeyCode::Esc)]);
        }
    }
}

#[test]
fn a_colon_in_a_filter_is_a_letter_of_it() {
    let mut state = showing(healthy());
    let _ = play(&mut state, typed("/a:"));
    assert!(state.dialog().is_none());
    assert_eq!(state.common().instances().filter(), "a:");
}

#[test]
fn the_palette_of_a_recording_steers_it() {
    let mut state = showing(healthy());
    let playback = Playback {
        from: NOW - 10_000,
        to: NOW,
        at: NOW - 5_000,
        speed: 1.0,
        paused: false,
    };
    let _ = play(&mut state, [Event::Played(playback)]);
    let shown = looked_for(&mut state, "twice speed");
    assert!(selected(&shown).contains(")      faster "), "{shown}");
    let actions = play(&mut state, [key(KeyCode::Enter)]);
    let faster = Action::Play(Play::Faster);
    assert_eq!(actions, [faster]);
}
