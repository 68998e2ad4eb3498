//! Text below a table that scrolls with `[`, `]` and the wheel.
use super::look::Look;
use super::{Drawn, Spot, put};
use crate::console::input::Input;
use crate::console::table::Turned;
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// How far it is scrolled.
#[derive(Debug, Default)]
pub struct Scroll {
    lines: usize,
}

impl Scroll {
    /// Takes an input, if it is one that scrolls.
    pub fn on(&mut self, input: &Input) -> bool {
        match *input {
            Input::Key(KeyCode::Char(']')) => self.lines += 1,
            Input::Key(KeyCode::Char('[')) => self.lines = self.lines.saturating_sub(1),
            Input::Wheel(Spot::Text, by) => self.lines = self.lines.saturating_add_signed(by),
            _ => return false,
        }
        true
    }

    /// The table above was turned: what is about another row is shown from its beginning.
    pub fn follow(&mut self, turned: Turned) {
        if turned != Turned::No {
            self.reset();
        }
    }

    /// From the beginning: it is about something else now.
    pub fn reset(&mut self) {
        self.lines = 0;
    }

    /// How many lines it is scrolled, at most.
    pub fn lines(&self, most: usize) -> usize {
        self.lines.min(most)
    }

    /// Draws as many lines as there is room for; of those that are out of sight is said how many.
    pub fn draw(
        &self,
        lines: Vec<Line>,
        look: Look,
        area: Rect,
        buf: &mut Buffer,
        drawn: &mut Drawn,
    ) {
        let room = usize::from(area.height);
        if room == 0 {
            return;
        }
        let first = self.lines(lines.len().saturating_sub(room));
        let left = lines.len().saturating_sub(first + room);
        let width = usize::from(area.width);
        for (row, line) in lines.into_iter().skip(first).take(room).enumerate() {
            put(buf, area, row as u16, line);
        }
        if left > 0 {
            let more = look.fit(&format!(" {left} more lines, ] scrolls"), width);
            let x = area.right() - more.chars().count() as u16;
            buf.set_string(x, area.bottom() - 1, more, look.faint());
        }
        drawn.spot(area, Spot::Text);
    }
}
