//! What happened, for whoever compares two runs or asks how one came to fail.
use robust_shared::time::Time;
use std::fmt::{Debug, Write as _};

/// What is kept of a run.
#[derive(Clone, Debug, Default)]
pub enum Journal {
    /// Nothing: writing it down takes longer than the run.
    #[default]
    Off,
    /// Every line.
    Lines(Vec<String>),
}

impl Journal {
    /// Notes an input (`<`) or an output (`>`).
    pub(super) fn note(&mut self, now: Time, way: char, what: &impl Debug) {
        if let Journal::Lines(lines) = self {
            let mut line = format!("{now} {way} ");
            // Writing into a string cannot fail.
            let _ = write!(line, "{what:?}");
            lines.push(line);
        }
    }

    /// The lines kept.
    pub fn lines(&self) -> &[String] {
        match self {
            Journal::Off => &[],
            Journal::Lines(lines) => lines,
        }
    }
}
