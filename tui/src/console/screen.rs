//! What lies on the console: a screen, or a dialog over it. Each is a module with a state of its own that
//! nobody else looks into; all the console knows of it is [`Screen`].
//!
//! ```text
//!  Input ──► Screen::on ──► Vec<Effect> ──► State: actions for the runner, a sentence, a dialog
//!                ▲
//!             Common ──► Screen::draw, Screen::hints       what all of them see; nothing is changed
//! ```
use super::event::Action;
use super::key::Key;
use super::names::ScreenId;
use super::state::Common;
use super::ui::Drawn;
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use std::fmt::Debug;

pub use super::input::Input;

/// A screen, or a dialog.
pub trait Screen: Debug {
    /// Takes what happened, and says what it wants done.
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect>;

    /// Draws it; what lies where goes into `drawn`, for the mouse and the next frame.
    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn);

    /// What the last line and the help say of it. Below a dialog they speak of the screen.
    fn hints<'a>(&'a self, _common: &'a Common) -> Hints<'a> {
        Hints::default()
    }

    /// Whether it shows phases as they end, which come while it is on top.
    fn shows_phases(&self, _common: &Common) -> bool {
        false
    }

    /// How many rows are marked in it, on all of which its acts are done together.
    fn marked(&self, _common: &Common) -> usize {
        0
    }

    /// Whether Esc would end something in it, besides a filter and marks.
    fn ends_with_esc(&self) -> bool {
        false
    }

    /// Why one of its own keys would do nothing now, in the words with which it refuses; the palette says so beside it.
    fn refuses(&self, _key: KeyCode, _common: &Common) -> Option<String> {
        None
    }
}

/// What a screen wants done.
#[derive(Debug)]
pub enum Effect {
    /// By the runner.
    Do(Action),
    /// A sentence in the last line.
    Tell {
        /// The sentence.
        text: String,
        /// Whether something was done.
        good: bool,
    },
    /// This dialog over the screen, in place of one that is there.
    Open(Box<dyn Screen>),
    /// The dialog away.
    Close,
    /// This screen on top.
    Show(ScreenId),
    /// The same as if the operator pressed this key, with no dialog open.
    Press(KeyCode),
    /// The dialog is told what there is to do, and what of it cannot be done now ([`Input::Offered`]).
    Offer,
}

impl Effect {
    /// A sentence on why something is not done.
    pub fn refuse(text: impl Into<String>) -> Effect {
        let (text, good) = (text.into(), false);
        Effect::Tell { text, good }
    }

    /// The sentence, where this is one on why something is not done.
    pub fn refusal(self) -> Option<String> {
        match self {
            Effect::Tell { text, good: false } => Some(text),
            _ => None,
        }
    }
}

/// What is said of a screen by others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints<'a> {
    /// Keys that it has and not every screen, for the help.
    pub own: &'static [&'static [Key]],
    /// The most useful ones, for the last line; palette, help and quit at the end.
    pub most: &'static [Key],
    /// What is being typed, after the words that say for what: it gets every key.
    pub typing: Option<(&'static str, &'a str)>,
    /// Only rows with these words are shown.
    pub filter: &'a str,
}
