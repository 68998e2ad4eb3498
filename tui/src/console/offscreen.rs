//! The console without a terminal, for whoever measures it: it is told what a daemon would tell it, and draws as the
//! console draws - layout, comparison with the last frame, escape sequences - into memory.
use super::event::Event;
use super::frame;
use super::state::{Settings, State};
use super::stored::Stored;
use super::ui::look::Look;
use crate::cli::ThemeName;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::backend::{CrosstermBackend, TestBackend};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};
use robust_proto::v1;
use std::io;
use std::time::{Duration, Instant};

/// The first connection, which is the only one.
const LINK: u64 = 1;

/// A console of some size, dark and in colour. What it wants done nobody does.
pub struct Offscreen {
    state: State,
    terminal: Terminal<CrosstermBackend<io::Sink>>,
    size: (u16, u16),
}

impl Offscreen {
    /// One of this many columns and rows, begun at this time (Unix ms).
    pub fn new(size: (u16, u16), now_ms: u64) -> io::Result<Self> {
        let look = Look::new(ThemeName::Dark, true, false);
        let mut state = State::new(Settings::of(look, "bench".to_owned()));
        let _ = state.start(now_ms);
        let options = TerminalOptions {
            viewport: Viewport::Fixed(Rect::new(0, 0, size.0, size.1)),
        };
        let backend = CrosstermBackend::new(io::sink());
        Ok(Self {
            state,
            terminal: Terminal::with_options(backend, options)?,
            size,
        })
    }

    /// Its time (Unix ms): that of the last status.
    pub fn now_ms(&self) -> u64 {
        self.state.common().now
    }

    fn handle(&mut self, event: Event) {
        let now = self.now_ms();
        let _ = self.state.handle(now, event);
    }

    /// The daemon sends a status.
    pub fn status(&mut self, status: v1::Status) {
        let now = status.now_ms;
        let status = Box::new(status);
        let _ = self.state.handle(now, Event::Status { link: LINK, status });
    }

    /// The daemon tells phases that ended.
    pub fn phases(&mut self, spans: Vec<v1::PhaseSpan>) {
        self.handle(Event::Phases { link: LINK, spans });
    }

    /// The daemon's journal grows.
    pub fn logged(&mut self, event: v1::Event) {
        let event = Box::new(event);
        self.handle(Event::Logged { link: LINK, event });
    }

    /// The store was looked at.
    pub fn stored(&mut self, stored: Stored) {
        self.handle(Event::StoreRead(Box::new(stored)));
    }

    /// The log of the chosen instance was read.
    pub fn log_read(&mut self, lines: Vec<String>) {
        let chosen = self.state.common().chosen_instance();
        let who = chosen.map_or_else(String::new, |r| crate::format::who(&r.role, r.index));
        let lines = Ok(lines);
        self.handle(Event::LogRead { who, lines });
    }

    /// Somebody presses a key.
    pub fn press(&mut self, code: KeyCode) {
        self.handle(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
    }

    /// Draws a frame; how long that took.
    pub fn draw(&mut self) -> io::Result<Duration> {
        let (state, mut drawn) = (&self.state, None);
        let begin = Instant::now();
        self.terminal
            .draw(|frame| drawn = Some(frame::draw(state, frame)))?;
        let took = begin.elapsed();
        self.state.set_drawn(drawn.unwrap_or_default());
        Ok(took)
    }

    /// What it shows now, line by line.
    pub fn text(&self) -> String {
        // This backend draws into memory, which cannot fail.
        let Ok(mut terminal) = Terminal::new(TestBackend::new(self.size.0, self.size.1));
        let Ok(_) = terminal.draw(|frame| drop(frame::draw(&self.state, frame)));
        terminal.backend().to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn it_shows_what_it_was_told_and_its_time_is_that_of_the_last_status() {
        let mut console = Offscreen::new((100, 30), 1_000).unwrap();
        assert_eq!(console.now_ms(), 1_000);
        console.status(v1::Status {
            job: "measured".into(),
            state: "running".into(),
            now_ms: 2_000,
            ..Default::default()
        });
        assert!(console.draw().unwrap() > Duration::ZERO);
        assert!(console.text().contains("measured"), "{}", console.text());
        assert_eq!(console.now_ms(), 2_000);
    }
}
