//! The roles screen.
use super::{check_screen, fill, screen};
use crate::console::state::State;
use crate::console::tests::fixtures::{NOW, healthy, key, on_two_nodes, press, showing};
use crossterm::event::KeyCode;
use robust_proto::v1;

#[test]
fn the_roles_screen() {
    check_screen("roles", '2');
}

#[test]
fn the_log_shows_only_lines_with_the_words_that_are_looked_for() {
    let mut state = showing(healthy());
    for key in "2fLOSS".chars() {
        let _ = state.handle(NOW, press(key));
    }
    fill(&mut state);
    let _ = state.handle(NOW, key(KeyCode::Enter));
    let text = screen(&state, 120, 40);
    assert!(text.contains("LOG, 2 lines with `LOSS`"), "{text}");
    assert!(
        text.contains("loss is 0.4") && !text.contains("listening"),
        "{text}"
    );
}

#[test]
fn with_several_nodes_each_role_shows_where_it_is() {
    let screen = screen(&showing(on_two_nodes()), 80, 24);
    let line = |who: &str| screen.lines().find(|l| l.contains(who)).unwrap().to_owned();
    assert!(line("ROLE").ends_with("NODE"), "{screen}");
    assert!(line("rollout-0").ends_with("node-a"), "{screen}");
    assert!(line("rollout-2").ends_with("node-b"), "{screen}");
}

#[test]
fn a_long_role_table_scrolls_with_the_selection() {
    let mut status = healthy();
    let one = status.roles[2].clone();
    for index in 3..90 {
        status.roles.push(v1::RoleStatus {
            index,
            ..one.clone()
        });
    }
    let mut state = showing(status);
    assert!(!screen(&state, 80, 24).contains("rollout-89"));
    let _ = state.handle(NOW, press('G'));
    let text = screen(&state, 80, 24);
    let row = text.lines().find(|l| l.contains("rollout-89")).unwrap();
    assert!(row.starts_with('▶'), "{text}");
}

#[test]
fn escape_ends_the_search_in_the_log_on_whatever_screen_it_is_pressed() {
    for away in ['1', '4', '7'] {
        let mut state = showing(healthy());
        let type_keys = |state: &mut State, keys: &str| {
            for key in keys.chars() {
                let _ = state.handle(NOW, press(key));
            }
        };
        type_keys(&mut state, "2fLOSS");
        fill(&mut state);
        let _ = state.handle(NOW, key(KeyCode::Enter));
        type_keys(&mut state, &format!("{away}2"));
        let kept = screen(&state, 120, 40);
        assert!(kept.contains("LOG, 2 lines with `LOSS`"), "{kept}");
        type_keys(&mut state, &away.to_string());
        let _ = state.handle(NOW, key(KeyCode::Esc));
        type_keys(&mut state, "2");
        let ended = screen(&state, 120, 40);
        assert!(ended.contains("LOG, last "), "{ended}");
    }
}
