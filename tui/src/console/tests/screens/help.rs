//! The help of each screen.
use super::screen;
use crate::console::dialogs::help::KeyHelp;
use crate::console::key::Key;
use crate::console::names::ScreenId;
use crate::console::state::State;
use crate::console::tests::fixtures::{NOW, healthy, press, showing};
use crate::console::tests::reducer;

#[test]
fn every_screen_has_a_help_of_its_own() {
    for (digit, word) in [
        ('1', "kill"),
        ('3', "zoom"),
        ('5', "checkpoints"),
        ('7', "cordon"),
        ('0', "longer"),
    ] {
        let mut state = showing(healthy());
        let _ = state.handle(NOW, press(digit));
        let _ = state.handle(NOW, press('?'));
        let text = screen(&state, 80, 24);
        let title = format!("Keys on {}", state.shown().title());
        assert!(text.contains(&title) && text.contains(word), "{text}");
    }
}

/// Those that the help of the shown screen has.
fn all_keys(state: &State) -> Vec<Key> {
    let own = state.screen().hints(state.common()).own;
    KeyHelp::of(state.shown(), own).keys(false)
}

/// The help's text from its first line to its last, a line further with each key.
fn scrolled_through(state: &mut State, width: u16, height: u16) -> String {
    let mut all = String::new();
    for _ in 0..100 {
        reducer::draw(state, width, height);
        let text = screen(state, width, height);
        all += &text;
        let ends = text.contains("leave the console; the job goes on");
        let more = text.contains(" more, j k scroll ");
        assert!(
            ends != more,
            "the last key, or that there are more:\n{text}"
        );
        if ends {
            return all;
        }
        let _ = state.handle(NOW, press('j'));
    }
    panic!("it never ends:\n{all}");
}

#[test]
fn every_key_of_the_help_can_be_seen_where_not_all_fit() {
    for (width, height) in [(80, 24), (60, 16)] {
        for digit in ScreenId::ALL.map(ScreenId::key) {
            let mut state = showing(healthy());
            let _ = state.handle(NOW, press(digit));
            let _ = state.handle(NOW, press('?'));
            let all = scrolled_through(&mut state, width, height);
            for key in all_keys(&state) {
                let word = key.does().split(' ').next().unwrap();
                let line = format!("{:<18} {word}", key.name());
                assert!(all.contains(&line), "no `{line}` at {width}x{height}");
            }
        }
    }
}

#[test]
fn the_help_scrolls_back_from_its_end_with_one_key() {
    let mut state = showing(healthy());
    let _ = state.handle(NOW, press('?'));
    let _ = scrolled_through(&mut state, 60, 16);
    let _ = state.handle(NOW, press('j'));
    assert!(screen(&state, 60, 16).contains(" k scrolls back "));
    let _ = state.handle(NOW, press('k'));
    assert!(screen(&state, 60, 16).contains(" 1 more, j k scroll "));
}
