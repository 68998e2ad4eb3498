//! How this daemon and its roles log: lines for people or JSON for programs, on stderr.
use clap::ValueEnum;
use robust_proto::LOG_FORMAT_VARIABLE;
use robust_shared::printable;
use std::io::{IsTerminal, stderr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing_subscriber::EnvFilter;

/// What a line looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Time, level, place and text; coloured on a terminal.
    #[default]
    Human,
    /// One JSON object: timestamp, level, target, fields.
    Json,
}

impl LogFormat {
    /// Its name, on the command line and in a role's environment.
    pub fn name(self) -> &'static str {
        match self {
            Self::Human => "human",
            Self::Json => "json",
        }
    }

    /// The variable by which a role is told.
    pub fn variable(self) -> (String, String) {
        (LOG_FORMAT_VARIABLE.to_owned(), self.name().to_owned())
    }

    /// Everything that is traced goes to stderr from now on; `RUST_LOG` says how much.
    pub fn start(self) {
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
        let lines = tracing_subscriber::fmt()
            .with_env_filter(filter)
            // Told to stderr itself, by what panics if that is impossible: on a full disk it is.
            .log_internal_errors(false)
            .with_writer(stderr);
        match self {
            Self::Human => lines.with_ansi(stderr().is_terminal()).init(),
            Self::Json => lines.json().init(),
        }
    }

    /// Why the program ends: for who started it, and in JSON for who collects.
    pub fn last_words(self, text: &str) {
        match self {
            // It may quote what a role wrote last.
            Self::Human if stderr().is_terminal() => {
                eprintln!("robustd: {}", printable::lines(text));
            }
            Self::Human => eprintln!("robustd: {text}"),
            Self::Json => tracing::error!("{text}"),
        }
    }
}

/// Lines that anybody can cause are written so often at most.
const SAID_EVERY: Duration = Duration::from_secs(1);

/// Lines of the log, few of them however many there would be.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// A line, unless one was written just now.
    pub fn say(&self, line: impl FnOnce() -> String) {
        // No code can panic while it holds the lock, so a poisoned time is as good as any.
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|at| at.elapsed() >= SAID_EVERY) {
            *said = Some(Instant::now());
            tracing::warn!("{}", line());
        }
    }
}

/// The first distance between two lines of what does not end by itself, and the longest one.
const RARER: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3600));

/// Lines of one trouble that is met again and again: one at once, and then at distances that grow.
#[derive(Debug, Default)]
pub struct Rarer(Option<(Instant, Duration)>);

impl Rarer {
    /// An error's line, if one is due.
    pub fn say(&mut self, line: impl FnOnce() -> String) {
        if self.is_due(Instant::now()) {
            tracing::error!("{}", line());
        }
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let distance = match self.0 {
            None => RARER.0,
            Some((said, distance)) if now.saturating_duration_since(said) >= distance => {
                (distance * 2).min(RARER.1)
            }
            Some(_) => return false,
        };
        self.0 = Some((now, distance));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_that_does_not_end_is_told_at_once_and_then_more_and_more_seldom() {
        let (mut rarer, begun) = (Rarer::default(), Instant::now());
        let told = |s: &u64| rarer.is_due(begun + Duration::from_secs(*s));
        let at: Vec<u64> = (0..4 * 3600).step_by(30).filter(told).collect();
        assert_eq!(at, [0, 60, 180, 420, 900, 1860, 3780, 7380, 10980]);
    }
}
