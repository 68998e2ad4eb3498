//! Draws the console from `&State`; nothing here changes anything. What was drawn where is handed back
//! ([`Drawn`]), which is what the mouse is held against.
//!
//! ```text
//!  tabs     1 line: the screens and their keys
//!  header   2 lines: job, state, age of data; step gauge, version, reward
//!  banner   0 or 1: daemon lost, job over, an alarm
//!  body     the screen
//!  footer   keys, what is being typed, or the answer to the last action
//! ```
mod bars;
mod charts;
pub mod drills;
mod empty;
mod footer;
mod grid;
mod header;
mod incident;
pub mod incidents;
mod instance;
mod log;
pub mod look;
pub mod nodes;
mod overlay;
mod overview;
mod plot;
pub mod roles;
pub mod stores;
mod tabs;
mod timeline;
pub mod tree;

use super::screen::{Screen, TableId};
use super::state::State;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::text::Line;

/// Below this nothing useful fits.
const SMALLEST: (u16, u16) = (60, 16);
/// From this width on two charts stand side by side.
const WIDE: u16 = 100;

/// A place that the mouse can be at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spot {
    /// The name of a screen.
    Tab(Screen),
    /// A row of a table, counted in its present order.
    Row(TableId, usize),
    /// The heading of a column.
    Head(TableId, usize),
    /// Anywhere on a table.
    Body(TableId),
    /// Text that scrolls.
    Text,
}

/// What a frame showed where.
#[derive(Clone, Debug, Default)]
pub struct Drawn {
    spots: Vec<(Rect, Spot)>,
    /// First row and number of rows that there was room for.
    tables: [(usize, usize); TableId::COUNT],
    /// Lines of the help below its last one.
    left: usize,
}

impl Drawn {
    /// What was at a cell; what was drawn last lies on top.
    pub fn at(&self, x: u16, y: u16) -> Option<Spot> {
        let here = Position { x, y };
        let mut found = self
            .spots
            .iter()
            .rev()
            .filter(|(area, _)| area.contains(here));
        found.next().map(|(_, spot)| *spot)
    }

    /// The first row of a table.
    pub fn first(&self, id: TableId) -> usize {
        self.tables[id as usize].0
    }

    /// How many rows of a table there is room for.
    pub fn room(&self, id: TableId) -> usize {
        self.tables[id as usize].1
    }

    /// How many lines of the help are still to come.
    pub fn left(&self) -> usize {
        self.left
    }

    fn spot(&mut self, area: Rect, spot: Spot) {
        self.spots.push((area, spot));
    }

    fn table(&mut self, id: TableId, first: usize, room: usize) {
        self.tables[id as usize] = (first, room);
    }
}

/// Draws a frame.
pub fn draw(state: &State, frame: &mut Frame) -> Drawn {
    let area = frame.area();
    let buf = frame.buffer_mut();
    let mut drawn = Drawn {
        spots: Vec::new(),
        tables: state.drawn.tables,
        left: 0,
    };
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        let (w, h) = SMALLEST;
        let text = format!(
            "robustctl: {}x{} is too small, {w}x{h} needed",
            area.width, area.height
        );
        put(buf, area, 0, Line::raw(text));
        return drawn;
    }
    tabs::draw(state, line(area, 0), buf, &mut drawn);
    let rest = below(area, 1);
    match state.job.status() {
        None if state.screen == Screen::Drills => {
            let (body, last) = split(rest, rest.height - 1);
            drills::draw(state, body, buf, &mut drawn);
            footer::draw(state, last, buf);
        }
        None => empty::draw(state, rest, buf),
        Some(status) => {
            let banner = u16::from(header::has_banner(state));
            let (head, rest) = split(rest, 2);
            let (alarm, rest) = split(rest, banner);
            let (body, last) = split(rest, rest.height - 1);
            header::draw(state, status, head, buf);
            header::draw_banner(state, status, alarm, buf);
            match state.screen {
                Screen::Overview => overview::draw(state, status, body, buf, &mut drawn),
                Screen::Roles => instance::draw(state, body, buf, &mut drawn),
                Screen::Timeline => timeline::draw(state, status, body, buf, &mut drawn),
                Screen::Weights => tree::draw(state, status, body, buf, &mut drawn),
                Screen::Store => stores::draw(state, status, body, buf, &mut drawn),
                Screen::Incidents => incident::draw(state, body, buf, &mut drawn),
                Screen::Nodes => nodes::draw(state, body, buf, &mut drawn),
                Screen::Drills => drills::draw(state, body, buf, &mut drawn),
            }
            footer::draw(state, last, buf);
        }
    }
    overlay::draw(state, area, buf, &mut drawn);
    drawn
}

/// One line of an area.
fn line(area: Rect, row: u16) -> Rect {
    Rect {
        y: area.y + row,
        height: 1,
        ..area
    }
}

/// All but the first lines.
fn below(area: Rect, lines: u16) -> Rect {
    split(area, lines).1
}

/// The first lines of an area, and the rest.
fn split(area: Rect, lines: u16) -> (Rect, Rect) {
    let lines = lines.min(area.height);
    let first = Rect {
        height: lines,
        ..area
    };
    let rest = Rect {
        y: area.y + lines,
        height: area.height - lines,
        ..area
    };
    (first, rest)
}

/// A line at `row` of the area, cut at its edge.
fn put(buf: &mut Buffer, area: Rect, row: u16, line: Line) {
    if row < area.height {
        buf.set_line(area.x, area.y + row, &line, area.width);
    }
}

/// Text at the left and at the right of one line; the right one gives way when both do not fit.
fn put_ends(buf: &mut Buffer, area: Rect, row: u16, left: Line, right: Line) {
    let (l, r) = (left.width() as u16, right.width() as u16);
    put(buf, area, row, left);
    if l + 2 + r <= area.width && row < area.height {
        buf.set_line(area.right() - r, area.y + row, &right, r);
    }
}

/// A section's heading over the whole width, and the area below it.
fn section(state: &State, area: Rect, title: &str, buf: &mut Buffer) -> Rect {
    if area.is_empty() {
        return area;
    }
    let style = state.look.heading();
    buf.set_style(Rect { height: 1, ..area }, style);
    let title = state.look.fit(title, usize::from(area.width));
    buf.set_string(area.x, area.y, title, style);
    below(area, 1)
}

/// Lines that scroll with `[` and `]`, of which the first that are out of sight are counted.
fn text(state: &State, lines: Vec<Line>, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
    let room = usize::from(area.height);
    if room == 0 {
        return;
    }
    let first = state.scrolled.min(lines.len().saturating_sub(room));
    let left = lines.len().saturating_sub(first + room);
    let width = usize::from(area.width);
    for (row, line) in lines.into_iter().skip(first).take(room).enumerate() {
        put(buf, area, row as u16, line);
    }
    if left > 0 {
        let more = state
            .look
            .fit(&format!(" {left} more lines, ] scrolls"), width);
        let x = area.right() - more.chars().count() as u16;
        buf.set_string(x, area.bottom() - 1, more, state.look.faint());
    }
    drawn.spot(area, Spot::Text);
}

/// Text broken into lines of at most `width` cells at spaces.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            let fits = line.chars().count() + 1 + word.chars().count() <= width;
            if !line.is_empty() && !fits {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}
