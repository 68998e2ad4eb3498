//! The console (`robustctl tui`): events in, actions out, drawing only reads.
//!
//! ```text
//!  keys ───────┐
//!  ticks ──────┤              ┌─► Vec<Action> ─► runner (connect, inject, stop, quit)
//!  signals ────┼─► channel ─► State::handle
//!  daemon ─────┤              └─► draw(&State, frame)
//!  answers ────┘
//! ```
//! One channel orders everything, so a session is a list of events and can be replayed in a test.
mod event;
mod feed;
mod keys;
mod runner;
mod state;
#[cfg(test)]
mod tests;
mod ui;

pub use runner::run;
