//! The timeline.
use super::{check_at, check_screen, screen};
use crate::console::tests::fixtures::{NOW, press, recovering, showing};

#[test]
fn the_timeline_screen() {
    check_screen("timeline", '3');
}

#[test]
fn the_timeline_shows_a_fault_where_it_was_and_follows_its_window() {
    let mut state = showing(recovering());
    let _ = state.handle(NOW, press('3'));
    let _ = state.handle(NOW, press('+'));
    check_at("timeline-minute", &state, 120, 40);
    let _ = state.handle(NOW, press('h'));
    let text = screen(&state, 120, 40);
    let axis = text.lines().nth(4).unwrap();
    assert!(
        axis.ends_with("-15s"),
        "the present is out of sight:\n{text}"
    );
}
