//! Whole screens at the sizes operators use. `INSTA_UPDATE=always cargo test -p robustctl` writes
//! them anew; look at them before checking them in.
use super::super::event::Event;
use super::super::state::State;
use super::super::ui::{self, look::Look};
use super::fixtures::*;
use crate::cli::ThemeName;
use crossterm::event::KeyCode;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use robust_proto::v1;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

fn drawn(state: &State, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| ui::draw(state, frame)).unwrap();
    terminal.backend().buffer().clone()
}

fn screen(state: &State, width: u16, height: u16) -> String {
    let buffer = drawn(state, width, height);
    let line = |y| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    (0..height).map(line).collect()
}

fn check(name: &str, state: &State) {
    for (width, height) in SIZES {
        insta::assert_snapshot!(
            format!("{name}-{width}x{height}"),
            screen(state, width, height)
        );
    }
}

fn lost() -> State {
    let mut state = showing(healthy());
    let reason = "nobody listens there any more".to_owned();
    let _ = state.handle(NOW + 1_000, Event::Lost { link: 1, reason });
    let _ = state.handle(NOW + 5_000, Event::Resize);
    state
}

#[test]
fn a_starting_job() {
    check("starting", &showing(starting()));
}

#[test]
fn a_healthy_job() {
    check("healthy", &showing(healthy()));
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
fn an_alarm_is_on_every_screen_for_as_long_as_it_holds() {
    let mut s = healthy();
    s.alarms.push(v1::Alarm {
        kind: "database full".into(),
        text: "the database's disk is full (3 MiB left): the job waits".into(),
        since_ms: NOW - 5_000,
    });
    let banner = |s: &v1::Status, width| {
        let screen = screen(&showing(s.clone()), width, 24);
        screen.lines().nth(2).unwrap().to_owned()
    };
    for (width, _) in SIZES {
        let line = banner(&s, width);
        assert!(
            line.contains("the database's disk is full (3 MiB left)"),
            "{line}"
        );
    }
    s.alarms.clear();
    assert!(!banner(&s, 80).contains("full"));
}

#[test]
fn a_recovering_trainer() {
    check("recovering", &showing(recovering()));
}

#[test]
fn a_lost_daemon_leaves_its_last_data_on_the_screen() {
    check("lost", &lost());
}

#[test]
fn no_daemon_yet() {
    let mut state = console();
    let reason = "there is no such socket".to_owned();
    let _ = state.handle(NOW, Event::Lost { link: 1, reason });
    check("empty", &state);
}

#[test]
fn a_dialog_says_what_will_happen_to_whom() {
    let mut state = showing(healthy());
    let _ = state.handle(NOW, press('j'));
    let _ = state.handle(NOW, press('K'));
    insta::assert_snapshot!("kill-dialog-80x24", screen(&state, 80, 24));
    let _ = state.handle(NOW, key(KeyCode::Esc));
    let _ = state.handle(NOW, press('?'));
    insta::assert_snapshot!("help-80x24", screen(&state, 80, 24));
}

#[test]
fn a_job_that_is_over_is_summed_up_in_one_line() {
    let mut status = healthy();
    (status.state, status.step) = ("completed".into(), 400);
    insta::assert_snapshot!("completed-80x24", screen(&showing(status), 80, 24));
}

#[test]
fn an_ascii_terminal_gets_ascii_only() {
    for status in [starting(), healthy(), recovering()] {
        let mut state = showing(status);
        state.look = Look::new(ThemeName::Light, false, true);
        let mut event = logged(8, "info", "note", "agent", "größer\n\x1b[31m");
        event.index = 1;
        let _ = state.handle(
            NOW,
            Event::Logged {
                link: 1,
                event: Box::new(event),
            },
        );
        let _ = state.handle(NOW, press('H'));
        for (width, height) in SIZES {
            let text = screen(&state, width, height);
            assert!(
                text.chars().all(|c| c == '\n' || (' '..='~').contains(&c)),
                "{text}"
            );
        }
    }
    let mut state = showing(recovering());
    state.look = Look::new(ThemeName::Dark, false, true);
    insta::assert_snapshot!("ascii-80x24", screen(&state, 80, 24));
}

#[test]
fn without_colour_no_cell_has_one() {
    use ratatui::style::Color;
    let mut state = lost();
    state.look = Look::new(ThemeName::Dark, false, false);
    let buffer = drawn(&state, 120, 40);
    assert!(
        buffer
            .content
            .iter()
            .all(|c| c.fg == Color::Reset && c.bg == Color::Reset)
    );
}

#[test]
fn every_size_can_be_drawn_and_small_ones_say_so() {
    for mut state in [showing(healthy()), showing(recovering()), lost(), console()] {
        let _ = state.handle(NOW, press('?'));
        for width in (1..=240).step_by(13) {
            for height in (1..=70).step_by(5) {
                let _ = screen(&state, width, height);
            }
        }
    }
    assert!(screen(&showing(healthy()), 59, 20).starts_with("robustctl: 59x20 is too small"));
    let smallest = screen(&showing(healthy()), 60, 16);
    for word in [
        "arith-grpo",
        "trainer-0",
        "agent-1",
        "WEIGHTS v118",
        "TOTAL",
        "quit",
    ] {
        assert!(smallest.contains(word), "{word} is missing:\n{smallest}");
    }
}

#[test]
fn a_long_role_table_scrolls_with_the_selection() {
    let mut status = healthy();
    let one = status.roles[2].clone();
    for index in 3..90 {
        status.roles.push(robust_proto::v1::RoleStatus {
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
