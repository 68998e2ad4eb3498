//! The palette: every screen and every act of the console, found by words. What is chosen is what its key does, for it
//! is that key which is pressed; what cannot be done now stays in the list and says why.
mod near;

use super::sheet::{self, Sheet, WIDE};
use crate::console::key::Key;
use crate::console::line::edit;
use crate::console::names::ScreenId;
use crate::console::screen::{Effect, Input, Screen};
use crate::console::state::Common;
use crate::console::ui::Drawn;
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::Line;

/// Something that the palette offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    key: String,
    word: String,
    does: String,
    choice: Choice,
    refused: Option<String>,
}

/// What follows when it is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Show(ScreenId),
    Press(KeyCode),
    /// Its key is of this screen, and means something else or nothing here.
    Elsewhere(ScreenId),
}

impl Offer {
    /// A screen.
    pub fn screen(screen: ScreenId) -> Offer {
        Offer {
            key: screen.key().to_string(),
            word: screen.title().to_owned(),
            does: format!("show screen {}", screen.title()),
            choice: Choice::Show(screen),
            refused: None,
        }
    }

    /// Whether it is the same thing to do, whatever stands in its way.
    fn is(&self, other: &Offer) -> bool {
        (&self.key, self.choice) == (&other.key, other.choice)
    }

    /// A key that means something here, and why it does nothing now; none where the palette is no place for it.
    pub fn here(key: &Key, refused: Option<String>) -> Option<Offer> {
        let choice = Choice::Press(key.press()?);
        let refused = refused.map(|why| format!("not now: {why}"));
        Some(Offer::of(key, choice, refused))
    }

    /// The same of a key of another screen.
    pub fn elsewhere(key: &Key, screen: ScreenId) -> Option<Offer> {
        key.press()?;
        let refused = Some(format!("not here: on screen {}", screen.title()));
        Some(Offer::of(key, Choice::Elsewhere(screen), refused))
    }

    fn of(key: &Key, choice: Choice, refused: Option<String>) -> Offer {
        Offer {
            key: key.short().0.to_owned(),
            word: key.short().1.to_owned(),
            does: key.does().to_owned(),
            choice,
            refused,
        }
    }

    /// How far it is from what was typed.
    fn distance(&self, typed: &str) -> Option<u32> {
        match typed.trim() == self.key {
            true => Some(0),
            false => near::distance(typed, &format!("{} {}", self.word, self.does)),
        }
    }

    fn effects(&self) -> Vec<Effect> {
        let effect = match self.choice {
            Choice::Show(screen) => Effect::Show(screen),
            // Where it cannot be done now, the key itself says so.
            Choice::Press(key) => Effect::Press(key),
            Choice::Elsewhere(screen) => {
                let (word, screen) = (&self.word, screen.title());
                Effect::refuse(format!("`{word}` is a key of screen {screen}"))
            }
        };
        vec![Effect::Close, effect]
    }
}

/// The palette.
#[derive(Debug, Default)]
pub struct Palette {
    typed: String,
    /// Which of those that match is selected.
    at: usize,
    /// All that there is.
    offers: Vec<Offer>,
}

impl Palette {
    /// Those that match, the nearest first and then as they are offered.
    fn matching(&self) -> Vec<&Offer> {
        let all = self.offers.iter();
        let mut found: Vec<(u32, &Offer)> = all
            .filter_map(|offer| Some((offer.distance(&self.typed)?, offer)))
            .collect();
        found.sort_by_key(|(distance, _)| *distance);
        found.into_iter().map(|(_, offer)| offer).collect()
    }

    /// The place of the last one that matches.
    fn last(&self) -> usize {
        self.matching().len().saturating_sub(1)
    }

    fn on_key(&mut self, code: KeyCode) -> Vec<Effect> {
        match code {
            KeyCode::Esc => return vec![Effect::Close],
            KeyCode::Enter => {
                let found = self.matching();
                let chosen = found.get(self.at);
                return chosen.map_or_else(Vec::new, |offer| offer.effects());
            }
            KeyCode::Up => self.at = self.at.saturating_sub(1),
            KeyCode::Down => self.at = (self.at + 1).min(self.last()),
            code => {
                edit(&mut self.typed, code);
                self.at = 0;
            }
        }
        Vec::new()
    }
}

impl Screen for Palette {
    fn on(&mut self, input: Input, _: &mut Common) -> Vec<Effect> {
        match input {
            Input::Key(code) => self.on_key(code),
            // What can be done may have changed with it.
            Input::Heard => vec![Effect::Offer],
            Input::Offered(offers) => {
                let selected = self.matching().get(self.at).map(|offer| (*offer).clone());
                self.offers = offers;
                // Enter does what was selected, wherever that stands now.
                let place = selected.and_then(|selected| {
                    let mut found = self.matching().into_iter();
                    found.position(|offer| offer.is(&selected))
                });
                self.at = place.unwrap_or(0).min(self.last());
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// As high as all that is offered, or as there is room for, whatever is typed: a frame that jumps is hard to read.
    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, _: &mut Drawn) {
        let look = common.look;
        let (width, height) = sheet::inside(WIDE, area);
        let room = self.offers.len().clamp(1, height.saturating_sub(4).max(1));
        let found = self.matching();
        let first = (self.at + 1).saturating_sub(room);
        let cursor = look.glyph("▏", "_");
        let mut lines = vec![
            Line::raw(look.fit(&format!(": {}{cursor}", self.typed), width)),
            Line::raw(""),
        ];
        for (row, offer) in found.iter().enumerate().skip(first).take(room) {
            let mark = match row == self.at {
                true => look.glyph("▶", ">"),
                false => " ",
            };
            let does = offer.refused.as_ref().unwrap_or(&offer.does);
            let text = format!("{mark} {:<6} {:<13} {does}", offer.key, offer.word);
            let style = match (row == self.at, &offer.refused) {
                (true, _) => look.strong(),
                (false, None) => Style::new(),
                (false, Some(_)) => look.faint(),
            };
            lines.push(Line::styled(look.fit(&text, width), style));
        }
        if found.is_empty() {
            lines.push(Line::styled("  nothing has these words", look.faint()));
        }
        lines.resize(room + 2, Line::raw(""));
        lines.push(Line::raw(""));
        let keys = "type words     Up Down: select     Enter: as its key     Esc: do nothing";
        lines.push(Line::raw(look.fit(keys, width)));
        let foot = format!(" {} of {} ", found.len(), self.offers.len());
        let sheet = Sheet {
            title: " What to do ",
            foot: &foot,
            width: WIDE,
            style: look.accent(),
        };
        sheet.draw_lines(look, lines, area, buf);
    }
}
