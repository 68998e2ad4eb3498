//! The console (`robustctl tui`): events in, actions out, drawing only reads.
//!
//! ```text
//!  keys, mouse ┐
//!  ticks ──────┤              ┌─► Vec<Action> ─► runner (connect, act, read, run a drill, quit)
//!  signals ────┼─► channel ─► State::handle
//!  daemon ─────┤              └─► frame::draw(&State) ─► Drawn: what lay where, for the mouse
//!  recording ──┤
//!  answers ────┘
//! ```
//! The jobs of several contexts lie side by side in a machine of their own ([`jobs`]), over the console of one of them
//! ([`session`]), which may be there or not. Keys go to whichever is on top; what comes from a daemon has a channel of its
//! own, which ends with its console.
//!
//! The state holds what is common. What a screen shows besides, and what its keys do, is the screen's own:
//! [`screen::Screen`], a module for each in [`screens`] and, for what lies over them, in [`dialogs`].
//!
//! One channel orders all that a daemon says, so a session is a list of events and can be replayed in a test.
//! What comes from the daemon can be recorded to a file and played again ([`record`], [`replay`]).
mod act;
mod advice;
mod dialogs;
mod drilling;
mod drills;
mod escapes;
mod event;
mod feed;
mod flow;
mod frame;
mod history;
mod input;
mod inputs;
mod job;
mod jobs;
mod key;
mod line;
mod logs;
mod names;
mod offscreen;
mod picture;
mod reading;
mod record;
mod replay;
mod runner;
mod screen;
mod screens;
mod session;
mod several;
mod state;
mod steps;
mod stored;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod ui;

pub use names::ScreenId;
pub use offscreen::Offscreen;
pub use runner::run;
pub use stored::{CheckpointRow, Stored};
