//! Whole screens at the sizes operators use; a file for each screen, and here what they have in common.
//! `INSTA_UPDATE=always cargo test -p robustctl` writes them anew; look at them before checking them in.
mod dialogs;
mod drills;
mod everywhere;
mod fleet;
mod help;
mod incidents;
mod inside;
mod nodes;
mod overview;
mod palette;
mod roles;
mod store;
mod time;
mod timeline;
mod training;
mod trajectory;
mod weights;

use super::super::event::Event;
use super::super::frame;
use super::super::state::{Settings, State};
use super::fixtures::*;
use crate::format::who;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

fn drawn(state: &State, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let draw = |frame: &mut ratatui::Frame| drop(frame::draw(state, frame));
    terminal.draw(draw).unwrap();
    terminal.backend().buffer().clone()
}

pub fn screen(state: &State, width: u16, height: u16) -> String {
    let buffer = drawn(state, width, height);
    let line = |y| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    (0..height).map(line).collect()
}

/// Compared with the snapshot of this name and size, all of which lie beside this file.
pub fn check_at(name: &str, state: &State, width: u16, height: u16) {
    insta::assert_snapshot!(
        format!("{name}-{width}x{height}"),
        screen(state, width, height)
    );
}

fn check(name: &str, state: &State) {
    for (width, height) in SIZES {
        check_at(name, state, width, height);
    }
}

/// One screen in all the situations a console can be in.
fn check_screen(name: &str, key: char) {
    let mut unreached = console();
    let reason = "there is no such socket".to_owned();
    let _ = unreached.handle(NOW, Event::Lost { link: 1, reason });
    let situations = [
        ("starting", showing(starting())),
        ("healthy", showing(on_two_nodes())),
        ("recovering", showing(recovering())),
        ("task-restart", showing(task_restart())),
        ("lost", lost()),
        ("empty", unreached),
    ];
    for (situation, mut state) in situations {
        let _ = state.handle(state.common().now, press(key));
        fill(&mut state);
        check(&format!("{name}-{situation}"), &state);
    }
}

/// What is asked for beside the status.
fn fill(state: &mut State) {
    let common = state.common();
    if common.job.status().is_none() {
        return;
    }
    let chosen = common.chosen_instance();
    let who = chosen.map_or_else(String::new, |r| who(&r.role, r.index));
    let lines = Ok(log_lines());
    let now = common.now;
    let _ = state.handle(now, Event::LogRead { who, lines });
    let _ = state.handle(now, Event::StoreRead(Box::new(stored(now - 400))));
    let read = steps_read();
    let _ = state.handle(now, read);
    let _ = state.handle(now, Event::DrillsRead(Ok(drill_files())));
}

fn lost() -> State {
    lost_of(settings())
}

fn lost_of(settings: Settings) -> State {
    let mut state = showing_of(settings, healthy());
    let reason = "nobody listens there any more".to_owned();
    let _ = state.handle(NOW + 1_000, Event::Lost { link: 1, reason });
    let _ = state.handle(NOW + 5_000, Event::Resize);
    state
}
