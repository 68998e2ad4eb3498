//! The audit log: who asked for what, and what came of it.
//!
//! ```text
//!  request ──► line `asked`, written and synced ──► carried out ──► line `done`, `refused`, `failed`
//!  who may only look ──► line `refused`, not synced, and not more than a few a minute
//! ```
//! `STATE/audit.jsonl`, one JSON object a line, appended only, each chained to the one before
//! ([`robust_shared::audit`]). A request that is not followed by a result was under way when the daemon
//! ended (`leader-crash` always is). It is of the state directory, not of the job: `--fresh` leaves it. A
//! file of [`MOST_BYTES`] becomes `audit.N.jsonl`, and [`MOST_FILES`] of those are kept.
mod allowance;
mod files;
mod kept;
#[cfg(test)]
mod tests;

pub use files::Position;
pub use kept::KeptError;

use crate::store::Store;
use allowance::Allowance;
use files::Writer;
use robust_proto::v1::AuditEntry;
use robust_shared::wire::AuditResult;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// A file of the log that is so long is the last one's predecessor: some 50,000 requests.
const MOST_BYTES: u64 = 16 << 20;
/// Predecessors that are kept.
const MOST_FILES: usize = 8;
/// Bytes of a request's content, and of a reason, that a line has.
const MOST_TEXT: usize = 4096;

/// How long a request waits until the job's log has it.
const SETTLED: Duration = Duration::from_secs(2);

/// The open log. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Audit(Arc<Inner>);

struct Inner {
    state: PathBuf,
    book: Mutex<Book>,
    /// Lines written since it was opened.
    lines: watch::Sender<u64>,
    /// Where each line goes as well, if the job's writes go into a log.
    kept: Option<Store>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Audit");
        shown.field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Book {
    writer: Writer,
    next: u64,
    refusals: Allowance,
}

/// Milliseconds since 1970; the log is for people and for other machines' logs.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

impl Audit {
    /// Opens or makes the log of a state directory. A line cut off by a crash, which nobody acted upon, is
    /// removed.
    pub fn open(state: &Path) -> io::Result<Self> {
        Self::open_with(state, MOST_BYTES, None)
    }

    /// The same, for a job whose writes go into a log: what other controllers wrote down is there, and what is written
    /// goes to this store as well, before any write of what was asked for.
    ///
    /// # Errors
    /// When files or store cannot be read or written.
    pub fn open_kept(state: &Path, store: &Store) -> Result<Self, KeptError> {
        kept::reconcile(state, store)?;
        Ok(Self::open_with(state, MOST_BYTES, Some(store.clone()))?)
    }

    fn open_with(state: &Path, most_bytes: u64, kept: Option<Store>) -> io::Result<Self> {
        let (writer, last) = Writer::open(state, most_bytes)?;
        let book = Book {
            writer,
            next: last + 1,
            refusals: Allowance::new(Instant::now()),
        };
        Ok(Self(Arc::new(Inner {
            state: state.to_owned(),
            book: Mutex::new(book),
            lines: watch::Sender::new(0),
            kept,
        })))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(
        &self,
        mut book: MutexGuard<'_, Book>,
        entry: &AuditEntry,
        synced: bool,
    ) -> io::Result<()> {
        let (n, line) = book.writer.append(entry, synced)?;
        book.next = book.next.max(entry.id + 1);
        if let Some(store) = &self.0.kept {
            store.append_audit(n, &line);
        }
        drop(book);
        self.0.lines.send_modify(|n| *n += 1);
        Ok(())
    }

    /// Writes down that a request is about to be carried out; its number. On disk when this returns.
    pub fn asked(&self, who: &str, what: &str, on: &str) -> io::Result<AuditEntry> {
        let book = self.book();
        let entry = AuditEntry {
            id: book.next,
            at_ms: now_ms(),
            who: who.to_owned(),
            what: what.to_owned(),
            on: cut(on),
            result: AuditResult::Asked.word().to_owned(),
            ..AuditEntry::default()
        };
        self.append(book, &entry, true)?;
        Ok(entry)
    }

    /// Waits until what was asked is where the next controller has it: for a moment, as a log that is away must not keep
    /// operators from acting.
    pub async fn settled(&self) {
        if let Some(store) = &self.0.kept {
            // Whether it came to that shows in the job's alarm.
            let _ = tokio::time::timeout(SETTLED, store.sync()).await;
        }
    }

    /// Writes down what came of it. A refusal changed nothing, so nothing is lost with its line.
    pub fn came_of(
        &self,
        asked: &AuditEntry,
        result: AuditResult,
        reason: &str,
        took: Duration,
    ) -> io::Result<()> {
        let entry = AuditEntry {
            at_ms: now_ms(),
            result: result.word().to_owned(),
            reason: cut(reason),
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            ..asked.clone()
        };
        self.append(self.book(), &entry, result != AuditResult::Refused)
    }

    /// Writes down that somebody asked for what is not theirs to ask for, without a wait for the disk. Who
    /// does so all the time fills no disk: most of it is counted only.
    pub fn refused(&self, who: &str, what: &str, reason: &str) -> io::Result<()> {
        let mut book = self.book();
        let Some(unlisted) = book.refusals.take(Instant::now()) else {
            return Ok(());
        };
        let reason = match unlisted {
            0 => reason.to_owned(),
            n => format!("{reason} ({n} more refusals before this one are not listed)"),
        };
        let entry = AuditEntry {
            id: book.next,
            at_ms: now_ms(),
            who: who.to_owned(),
            what: what.to_owned(),
            result: AuditResult::Refused.word().to_owned(),
            reason: cut(&reason),
            ..AuditEntry::default()
        };
        self.append(book, &entry, false)
    }

    /// The entries from a place in the log on, and the place after them.
    pub fn read(&self, from: Position) -> io::Result<(Vec<AuditEntry>, Position)> {
        // No file gets another name while they are opened.
        let book = self.book();
        let parts = files::open_from(&self.0.state, from)?;
        drop(book);
        files::read(parts, from)
    }

    /// Changes with every line.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.lines.subscribe()
    }
}

/// The beginning of a text that may be of any length.
fn cut(text: &str) -> String {
    match text.len() > MOST_TEXT {
        false => text.to_owned(),
        true => format!("{}…", &text[..text.floor_char_boundary(MOST_TEXT)]),
    }
}
