//! What is noted while something is measured.
//!
//! Rounds of what is compared alternate, so that they see about the same load. A part that fails is left out, with
//! the reason in the report.
use crate::machine::load;
use robust_shared::figure::{Figure, Figures};
use serde_json::{Map, Value};
use std::time::Instant;

/// All that was measured so far.
pub struct Report {
    figures: Figures,
    started: Instant,
}

impl Report {
    /// One that begins now.
    pub fn begin() -> Self {
        Self {
            figures: Figures::default(),
            started: Instant::now(),
        }
    }

    /// Says on standard error what is going on.
    pub fn say(&self, text: &str) {
        eprintln!("[{:5.1} s] {text}", self.started.elapsed().as_secs_f64());
    }

    /// Notes what is left out, and why.
    pub fn skip(&mut self, what: &str, reason: impl std::fmt::Display) {
        let line = format!("{what} skipped: {reason}");
        self.say(&line);
        self.figures.skip(line);
    }

    /// Notes one round's value of a figure.
    pub fn add(&mut self, name: impl Into<String>, value: f64) {
        self.figures.add(name, value, load());
    }

    /// Puts a figure that is whole.
    pub fn put(&mut self, name: &str, figure: Figure) {
        let median = figure.median().unwrap_or(f64::NAN);
        self.say(&format!("{name}: {median:.3}"));
        self.figures.put(name, figure);
    }

    /// A figure, as far as it was measured.
    pub fn get(&self, name: &str) -> Option<&Figure> {
        self.figures.get(name)
    }

    /// Puts `name`, round by round `a` over `b`, if both were measured.
    pub fn ratio(&mut self, name: &str, a: &str, b: &str) {
        if let Some(ratio) = self.figures.ratio(a, b) {
            self.put(name, ratio);
        }
    }

    /// A key a figure, `skipped`, `seconds` and `settings`.
    pub fn json(&self, settings: Value) -> Map<String, Value> {
        let seconds = self.started.elapsed().as_secs_f64();
        let all = self.figures.report(seconds, settings);
        all.as_object().cloned().unwrap_or_default()
    }
}
