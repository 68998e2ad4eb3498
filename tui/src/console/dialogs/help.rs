//! The help: what the keys do, those of the screen first.
use super::sheet::{self, Sheet, WIDE};
use crate::console::key::{EVERYWHERE, Key, PLAYING};
use crate::console::names::ScreenId;
use crate::console::screen::{Effect, Input, Screen};
use crate::console::state::Common;
use crate::console::ui::{Drawn, wrapped};
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// The keys on a screen.
#[derive(Debug)]
pub struct KeyHelp {
    screen: ScreenId,
    /// Those that it has and not every screen.
    own: &'static [&'static [Key]],
    /// The first line that is wanted; at the end the last ones stay.
    first: usize,
}

impl KeyHelp {
    /// From its beginning.
    pub fn of(screen: ScreenId, own: &'static [&'static [Key]]) -> KeyHelp {
        let first = 0;
        KeyHelp { screen, own, first }
    }

    /// All of them, also those that there is no room for.
    pub fn keys(&self, playing: bool) -> Vec<Key> {
        let mut keys = self.own.concat();
        if playing {
            keys.extend(PLAYING);
        }
        keys.extend(EVERYWHERE);
        keys
    }
}

impl Screen for KeyHelp {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        let Input::Key(code) = input else {
            return Vec::new();
        };
        match code {
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('?' | 'q' | 'y' | 'n') => {
                return vec![Effect::Close];
            }
            KeyCode::Up | KeyCode::Char('k') => self.first = self.first.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') if common.drawn.left() > 0 => self.first += 1,
            _ => {}
        }
        Vec::new()
    }

    /// As many keys as there is room for; the lower edge says how many lines are still to come.
    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        let title = format!(" Keys on {} ", self.screen.title());
        let keys = self.keys(common.playback.is_some());
        let (room, rows) = sheet::inside(WIDE, area);
        let lines: Vec<String> = keys.iter().flat_map(|key| of_key(key, room)).collect();
        let (shown, left) = sheet::scrolled(&lines, self.first, rows);
        drawn.below(left);
        let foot = match (lines.len() - shown.len(), left) {
            (0, 0) => String::new(),
            (_, 0) => " k scrolls back ".to_owned(),
            (_, left) => format!(" {left} more, j k scroll "),
        };
        let sheet = Sheet {
            title: &title,
            foot: &foot,
            width: WIDE,
            style: Style::new(),
        };
        sheet.draw(common.look, shown, area, buf);
    }
}

/// A key, and beside it what it does.
fn of_key(key: &Key, room: usize) -> Vec<String> {
    let parts = wrapped(key.does(), room.saturating_sub(19));
    let keys = std::iter::once(key.name()).chain(std::iter::repeat(""));
    let lines = keys.zip(parts);
    lines
        .map(|(key, part)| format!("{key:<18} {part}"))
        .collect()
}
