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
