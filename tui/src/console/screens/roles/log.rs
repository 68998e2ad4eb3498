//! The end of the selected instance's log, and the words that are looked for in it.
use crate::console::line::edit_until_done;
use crate::console::logs::Tail;
use crate::console::screen::Input;
use crate::console::state::Common;
use crate::console::table::Turned;
use crate::console::ui::scroll::Scroll;
use crate::console::ui::{Drawn, Spot, put, section, wrapped};
use crate::format::who;
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// The log that is shown.
#[derive(Debug, Default)]
pub struct Log {
    /// As it was read last; it may be another instance's by now.
    tail: Option<Tail>,
    /// Only lines with these.
    words: String,
    /// Keys go into the words.
    searching: bool,
    /// Back from the end.
    scroll: Scroll,
}

impl Log {
    /// It was read.
    pub fn read(&mut self, tail: Tail) {
        self.tail = Some(tail);
    }

    /// The table above was turned.
    pub fn follow(&mut self, turned: Turned) {
        self.scroll.follow(turned);
    }

    /// The words that are typed.
    pub fn typing(&self) -> Option<(&'static str, &str)> {
        self.searching
            .then_some(("find in the log", self.words.as_str()))
    }

    /// Whether only lines with some words are shown.
    pub fn is_searched(&self) -> bool {
        !self.words.is_empty()
    }

    /// Takes an input, if it is the log's alone.
    pub fn on(&mut self, input: &Input) -> bool {
        match *input {
            Input::Key(code) if self.searching => {
                self.searching = edit_until_done(&mut self.words, code);
                self.scroll.reset();
                true
            }
            Input::Key(KeyCode::Char('f')) => {
                self.searching = true;
                true
            }
            Input::SearchEnded => {
                self.words.clear();
                true
            }
            // These end what the table has, too.
            Input::Key(KeyCode::Esc) => {
                self.words.clear();
                false
            }
            Input::Shown => {
                self.searching = false;
                false
            }
            _ => self.scroll.on(input),
        }
    }

    /// Draws as many lines as there is room for, the last ones.
    pub fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        let words = &self.words;
        let chosen = common.chosen_instance().map(|r| who(&r.role, r.index));
        let tail = self
            .tail
            .as_ref()
            .filter(|t| Some(&t.who) == chosen.as_ref());
        let found = tail.map(|t| t.found(words)).unwrap_or_default();
        let title = match (tail, words.is_empty()) {
            (None, _) => "LOG".to_owned(),
            (Some(_), true) => format!("LOG, last {} lines (f finds)", found.len()),
            (Some(_), false) => format!("LOG, {} lines with `{words}`", found.len()),
        };
        let inner = section(common.look, area, &title, buf);
        let room = usize::from(inner.height);
        let width = usize::from(inner.width.saturating_sub(1));
        let problem = tail.and_then(|t| t.lines.as_ref().err());
        if let Some(problem) = problem {
            let lines = wrapped(problem, width);
            let lines = lines
                .into_iter()
                .map(|l| Line::styled(format!(" {l}"), common.look.faint()));
            return self
                .scroll
                .draw(lines.collect(), common.look, inner, buf, drawn);
        }
        // Scrolling goes back from the end.
        let back = self.scroll.lines(found.len().saturating_sub(room));
        let first = found.len().saturating_sub(room + back);
        for (row, line) in found.iter().skip(first).take(room).enumerate() {
            let line = format!(" {}", common.look.fit(line, width));
            put(buf, inner, row as u16, Line::raw(line));
        }
        drawn.spot(inner, Spot::Text);
    }
}
