//! Cause: what a process died of, so that the same is known again when its numbers, addresses and times
//! differ.
//!
//! ```text
//!  exit, its log's end ──► raised: exception, panic, `terminate`, fatal error ─┐
//!        │                   (type, message, innermost frames)                ├─► fold ──► fingerprint
//!        └───────────────► said: the last `error:` line, else the last line ──┘
//! ```
//! Whoever dies of the same cause again and again without useful work between will not be mended by one
//! more restart (I-7): its budget is `restart.same_cause`. So two causes must not be taken for one, and
//! where that is in doubt they are two: the budgets by kind of fault ([`super::budget`]) go on beside this.
//!
//! A death that came from outside has none: a kill, a lost node, failing hardware, a process that does
//! nothing. It says nothing of what the role will do next time. A kill because the role reached its own limit
//! of memory is none of those.
mod count;
mod fold;
pub mod memory;
mod raised;
mod read;
#[cfg(test)]
mod tests;

use crate::core::input::Exit;
use crate::time::Time;
use fold::{bare, fold};
use raised::Raised;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// So many letters of a cause's words are kept.
const WORDS_KEPT: usize = 300;

/// So many causes of one instance are counted; the one seen longest ago goes first.
const CAUSES_KEPT: usize = 16;

/// The exit code of a role program whose daemon was away for too long (`robust-role`, `NO_DAEMON`).
const NO_DAEMON: i32 = 5;

/// Signals that a process brings upon itself: SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGXCPU,
/// SIGXFSZ, SIGSYS (signal(7), x86 and ARM). All others come from somebody else.
const OWN_SIGNALS: [i32; 9] = [4, 5, 6, 7, 8, 11, 24, 25, 31];

/// Signals that somebody else sends, as the shims, torchrun and others name them.
const OUTSIDE: [&str; 5] = ["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"];

/// What a cause is known by: a hash of its folded words, the same on every machine and in every version
/// that folds them alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Fingerprint(pub u64);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Fingerprint {
    /// FNV-1a of these parts, a byte that no text has between them.
    fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let bytes = parts.into_iter().flat_map(|p| p.bytes().chain([0xff]));
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(bytes.fold(0xcbf2_9ce4_8422_2325, mix))
    }
}

/// What a process died of, or a call failed of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// What it is known by.
    pub fingerprint: Fingerprint,
    /// What a person reads, at most a line.
    pub words: String,
}

impl Cause {
    /// Of a process that ended, by the end of its log. None where it was ended from outside.
    pub fn of_exit(exit: &Exit, log: &str) -> Option<Self> {
        if let Some(line) = memory::by_limit(log) {
            return Self::new("", Some(line), None);
        }
        let ended_itself = match exit {
            Exit::Code(code) => is_own(*code),
            Exit::Signal(signal) => OWN_SIGNALS.contains(signal),
            Exit::Gone => false,
        };
        if !ended_itself {
            return None;
        }
        let log = bare(log);
        let raised = Raised::last_in(&log);
        // What a process wrote before a signal struck it explains nothing, unless it says so.
        let said = last_words(&log).filter(|line| match exit {
            Exit::Code(_) => raised.is_none() || is_error(line),
            _ => false,
        });
        Self::new(&exit.to_string(), said, raised)
    }

    /// Of a call that ended with this error.
    pub fn of_error(error: &str) -> Option<Self> {
        let error = bare(error);
        let raised = Raised::last_in(&error);
        let said = match raised {
            // The frames further out are how it was come to.
            Some(_) => error.trim().lines().next(),
            None => Some(error.as_str()),
        };
        Self::new("", said, raised)
    }

    fn new(exit: &str, said: Option<&str>, raised: Option<Raised>) -> Option<Self> {
        let said = said.unwrap_or_default().trim();
        let line = raised.as_ref().map(Raised::line);
        let words = line.as_deref().or_else(|| said.lines().next());
        let words = words.unwrap_or_default();
        let from_outside = |text: &str| OUTSIDE.iter().any(|signal| text.contains(signal));
        let interrupted = raised.as_ref().is_some_and(Raised::is_interrupt);
        if interrupted || from_outside(said) || from_outside(words) {
            return None;
        }
        let parts: Vec<String> = [exit.to_owned(), fold(said)]
            .into_iter()
            .chain(raised.iter().flat_map(Raised::identity))
            .collect();
        let words = match (exit, words) {
            ("", "") => return None,
            (exit, "") => exit.to_owned(),
            ("", words) => words.to_owned(),
            (exit, words) => format!("{exit}: {}", plain(words)),
        };
        Some(Self {
            fingerprint: Fingerprint::of(parts.iter().map(String::as_str)),
            words: cut(&words),
        })
    }
}

/// Whether a process that ended with this code did so by itself. One that is asked to end may end with 0,
/// and shells say of a program that a signal ended it 128 and the signal's number.
fn is_own(code: i32) -> bool {
    let signal = (129..=192).contains(&code).then(|| code - 128);
    let by_signal = signal.is_none_or(|signal| OWN_SIGNALS.contains(&signal));
    code != 0 && code != NO_DAEMON && by_signal
}

/// Whether a program says with this line why it ends, as ours do.
fn is_error(line: &str) -> bool {
    line.starts_with("error:")
}

/// What a process that ended itself had to say: its last `error:` line, else its last line that has a
/// letter or digit.
pub fn last_words(log: &str) -> Option<&str> {
    let mut lines = log
        .lines()
        .rev()
        .map(str::trim)
        .filter(|line| line.contains(char::is_alphanumeric));
    lines
        .clone()
        .find(|line| is_error(line))
        .or_else(|| lines.next())
}

/// A line without the `error:` that everybody can do without.
fn plain(line: &str) -> &str {
    line.strip_prefix("error:").unwrap_or(line).trim()
}

/// The beginning of a text.
fn cut(text: &str) -> String {
    match text.char_indices().nth(WORDS_KEPT) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// A cause, and the how manieth time it was without useful work between.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recurring {
    /// What it is.
    pub cause: Cause,
    /// Times in a row that one instance (or the gang) died of it, this one included.
    pub count: u32,
}

/// How often one instance (or the gang) died of which cause; useful work clears it. No time does: who died
/// of the same a day ago and did nothing since did not get well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Causes(BTreeMap<Fingerprint, Row>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    count: u32,
    since: Time,
    last: Time,
}

impl Causes {
    /// Counts one and says how many that makes.
    pub fn strike(&mut self, cause: Fingerprint, now: Time) -> u32 {
        if self.0.len() >= CAUSES_KEPT && !self.0.contains_key(&cause) {
            self.forget_oldest();
        }
        let row = self.0.entry(cause).or_insert(Row {
            count: 0,
            since: now,
            last: now,
        });
        (row.count, row.last) = (row.count.saturating_add(1), now);
        row.count
    }

    fn forget_oldest(&mut self) {
        let oldest = self.0.iter().min_by_key(|(_, row)| row.last);
        if let Some(oldest) = oldest.map(|(cause, _)| *cause) {
            self.0.remove(&oldest);
        }
    }

    /// How many there are, though one more died that does not count.
    pub fn in_a_row(&self, cause: Fingerprint) -> u32 {
        self.0.get(&cause).map_or(0, |row| row.count)
    }

    /// The one counted at that time was not the instance's fault.
    pub fn take_back(&mut self, cause: Fingerprint, at: Time) {
        if let Some(row) = self.0.get_mut(&cause).filter(|row| row.since <= at) {
            row.count = row.count.saturating_sub(1);
        }
    }

    /// Whether nothing is counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Useful work: what comes is not in a row with what was.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
