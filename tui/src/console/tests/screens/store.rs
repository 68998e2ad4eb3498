//! The store screen.
use super::{check_screen, fill, screen};
use crate::console::tests::fixtures::{NOW, healthy, key, press, showing};
use crate::console::tests::reducer::{draw, play, typed, wheel};
use crossterm::event::KeyCode;

#[test]
fn the_store_screen() {
    check_screen("store", '5');
}

#[test]
fn a_filter_that_is_typed_keeps_its_keys_while_the_wheel_turns_the_other_list() {
    let mut state = showing(healthy());
    let _ = state.handle(NOW, press('5'));
    fill(&mut state);
    draw(&mut state, 80, 24);
    let other = screen(&state, 80, 24);
    let row = other.lines().position(|l| l.contains("TRAJECTORIES"));
    let _ = play(&mut state, typed("/1"));
    let _ = play(&mut state, [wheel(9, row.unwrap() as u16 + 2)]);
    let _ = play(&mut state, typed("0q"));
    assert!(screen(&state, 80, 24).contains(" filter: 10q"));
    let _ = play(&mut state, [key(KeyCode::Backspace), key(KeyCode::Enter)]);
    let after = screen(&state, 80, 24);
    assert!(
        after.contains("▶ TRAJECTORIES"),
        "the wheel chose it:\n{after}"
    );
    let _ = play(&mut state, typed("h"));
    assert!(screen(&state, 80, 24).contains("filter: 10 (Esc)"));
}
