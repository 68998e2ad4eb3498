//! What an instance does now, or whether every role answers, in a sheet that scrolls. It only looks: nothing is stopped
//! for it, and it is there in a console that only reads, too.
use super::sheet::{self, Sheet};
use crate::console::event::{Action, Asked, Event};
use crate::console::screen::{Effect, Input, Screen};
use crate::console::state::{Common, Link, Sight};
use crate::console::ui::{Drawn, wrapped};
use crate::format::who;
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Columns that the sheet leaves free beside it, and the widest that it gets.
const BESIDE: u16 = 4;
const WIDEST: u16 = 140;
/// Lines that a page is.
const PAGE: usize = 10;

/// The sheet.
#[derive(Debug)]
struct Inside {
    asked: Asked,
    /// What came, or why nothing did; none: it is waited for.
    found: Option<Result<Vec<String>, String>>,
    /// The first line that is wanted; at the end the last ones stay.
    first: usize,
}

/// The sheet, and what it asks for; or why neither can be.
pub fn open(asked: Asked, sight: &Sight) -> Vec<Effect> {
    if let Some(why) = cannot_look(sight) {
        return vec![Effect::refuse(why)];
    }
    let sheet = Inside {
        asked: asked.clone(),
        found: None,
        first: 0,
    };
    vec![
        Effect::Open(Box::new(sheet)),
        Effect::Do(Action::LookInside(asked)),
    ]
}

/// Why nobody can be asked now.
fn cannot_look(sight: &Sight) -> Option<&'static str> {
    match sight.link {
        _ if sight.playback.is_some() => Some("this is a recording"),
        Link::Waiting => Some("no daemon reached yet"),
        Link::Lost { .. } => Some("the daemon is not reachable"),
        Link::Live => None,
    }
}

impl Inside {
    fn on_key(&mut self, code: KeyCode, common: &Common) -> Vec<Effect> {
        let left = common.drawn.left();
        match code {
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => return vec![Effect::Close],
            KeyCode::Char('i') => return self.ask(self.asked.clone(), common),
            KeyCode::Char('p') => return self.ask(Asked::Answers, common),
            KeyCode::Down | KeyCode::Char('j') => self.first += left.min(1),
            KeyCode::PageDown => self.first += left.min(PAGE),
            KeyCode::End | KeyCode::Char('G') => self.first += left,
            KeyCode::Up | KeyCode::Char('k') => self.first = self.first.saturating_sub(1),
            KeyCode::PageUp => self.first = self.first.saturating_sub(PAGE),
            KeyCode::Home | KeyCode::Char('g') => self.first = 0,
            _ => {}
        }
        Vec::new()
    }

    /// Once: what is asked already is waited for.
    fn ask(&self, asked: Asked, common: &Common) -> Vec<Effect> {
        match self.found.is_none() && asked == self.asked {
            true => Vec::new(),
            false => open(asked, common),
        }
    }

    fn title(&self) -> String {
        match &self.asked {
            Asked::Inside { role, index } => format!(" Inside of {} ", who(role, *index)),
            Asked::InsideOf(whom) => format!(" Inside of {} instances ", whom.len()),
            Asked::Answers => " Who answers ".to_owned(),
        }
    }

    /// As broad as there is room.
    fn lines(&self, room: usize) -> Vec<String> {
        match &self.found {
            None => vec!["asked; an answer comes within 16 s ..".to_owned()],
            Some(Err(why)) => wrapped(why, room),
            Some(Ok(lines)) => lines.iter().flat_map(|line| broken(line, room)).collect(),
        }
    }
}

impl Screen for Inside {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        match input {
            Input::Key(code) => self.on_key(code, common),
            Input::News(Event::LookedInside { asked, found }) if asked == self.asked => {
                self.found = Some(found);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// As many lines as there is room for; the lower edge says how many are still to come.
    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        let width = area.width.saturating_sub(BESIDE).min(WIDEST);
        let (room, rows) = sheet::inside(width, area);
        let lines = self.lines(room);
        let (shown, left) = sheet::scrolled(&lines, self.first, rows);
        let fit = |line: &String| common.look.fit(line, room);
        let shown: Vec<String> = shown.iter().map(fit).collect();
        drawn.below(left);
        let foot = match left {
            0 => " i again  p who answers  Esc ".to_owned(),
            left => format!(" {left} more, j k scroll  i again  p who answers  Esc "),
        };
        let sheet = Sheet {
            title: &self.title(),
            foot: &foot,
            width,
            style: Style::new(),
        };
        sheet.draw(common.look, &shown, area, buf);
    }
}

/// A line in as many as it takes, each as far to the right as it begins.
fn broken(line: &str, room: usize) -> Vec<String> {
    if line.chars().count() <= room {
        return vec![line.to_owned()];
    }
    let text = line.trim_start();
    let indent = line.len() - text.len();
    let parts = wrapped(text, room.saturating_sub(indent).max(1));
    let parts = parts.into_iter();
    parts
        .map(|part| format!("{}{part}", " ".repeat(indent)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_broken_as_far_to_the_right_as_it_begins() {
        assert_eq!(broken("    short", 20), ["    short"]);
        let long = "    no stacks of Python: py-spy is not installed";
        let expected = [
            "    no stacks of",
            "    Python: py-spy",
            "    is not",
            "    installed",
        ];
        assert_eq!(broken(long, 18), expected);
    }
}
