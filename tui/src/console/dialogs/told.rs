//! What came of several acts, in a sheet that scrolls.
use super::sheet::{self, Sheet, WIDE};
use crate::console::screen::{Effect, Input, Screen};
use crate::console::several::Answers;
use crate::console::state::Common;
use crate::console::ui::look::Tone;
use crate::console::ui::{Drawn, wrapped};
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// The sheet.
#[derive(Debug)]
pub struct Told {
    lines: Vec<String>,
    /// The first line that is wanted; at the end the last ones stay.
    first: usize,
}

impl Told {
    /// From its beginning.
    pub fn of(answers: &Answers) -> Told {
        Told {
            lines: answers.lines(),
            first: 0,
        }
    }
}

impl Screen for Told {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        let Input::Key(code) = input else {
            return Vec::new();
        };
        match code {
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q' | 'y' | 'n') => {
                return vec![Effect::Close];
            }
            KeyCode::Up | KeyCode::Char('k') => self.first = self.first.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') if common.drawn.left() > 0 => self.first += 1,
            _ => {}
        }
        Vec::new()
    }

    /// As many lines as there is room for; the lower edge says how many are still to come.
    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        let (room, rows) = sheet::inside(WIDE, area);
        let broken = |line: &String| match line.is_empty() {
            true => vec![String::new()],
            false => wrapped(line, room),
        };
        let lines: Vec<String> = self.lines.iter().flat_map(broken).collect();
        let (shown, left) = sheet::scrolled(&lines, self.first, rows);
        // A word that is wider than the sheet has no place to be broken at.
        let fit = |line: &String| common.look.fit(line, room);
        let shown: Vec<String> = shown.iter().map(fit).collect();
        drawn.below(left);
        let foot = match left {
            0 => " Esc closes ".to_owned(),
            left => format!(" {left} more, j k scroll, Esc closes "),
        };
        let sheet = Sheet {
            title: " What came of it ",
            foot: &foot,
            width: WIDE,
            style: common.look.tone(Tone::Bad),
        };
        sheet.draw(common.look, &shown, area, buf);
    }
}
