//! The audit log: who asked for what, and what came of it.
//!
//! ```text
//!  request ──► line `asked`, written and synced ──► carried out ──► line `done`, `refused`, `failed`
//! ```
//! `STATE/audit.jsonl`, one JSON object a line, appended only. A request that is not followed by a
//! result was under way when the daemon ended (`leader-crash` always is). It is of the state
//! directory, not of the job: `--fresh` leaves it. It is not rotated; a request is about 200 bytes.
use robust_proto::v1::AuditEntry;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// The log's file in a state directory.
const FILE: &str = "audit.jsonl";

/// The result of a request that is under way.
pub const ASKED: &str = "asked";

/// The open log. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Audit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    writer: Mutex<Writer>,
    /// Lines written since it was opened.
    lines: watch::Sender<u64>,
}

#[derive(Debug)]
struct Writer {
    file: File,
    next: u64,
}

/// Milliseconds since 1970; the log is for people and for other machines' logs.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

impl Audit {
    /// Opens or makes the log of a state directory. A line cut off by a crash is left and ended.
    pub fn open(state: &Path) -> io::Result<Self> {
        let path = state.join(FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)?;
        let last = read_from(&path, 0)?.0.iter().map(|e| e.id).max();
        if file.seek(SeekFrom::End(0))? > 0 {
            file.seek(SeekFrom::End(-1))?;
            let mut end = [0];
            file.read_exact(&mut end)?;
            if end != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        let next = last.unwrap_or(0) + 1;
        Ok(Self(Arc::new(Inner {
            path,
            writer: Mutex::new(Writer { file, next }),
            lines: watch::Sender::new(0),
        })))
    }

    /// Writes down that a request is about to be carried out; its number. On disk when this returns.
    pub fn asked(&self, who: &str, what: &str, on: &str) -> io::Result<AuditEntry> {
        let mut writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = AuditEntry {
            id: writer.next,
            at_ms: now_ms(),
            who: who.to_owned(),
            what: what.to_owned(),
            on: on.to_owned(),
            result: ASKED.to_owned(),
            ..AuditEntry::default()
        };
        writer.append(&entry)?;
        writer.next += 1;
        drop(writer);
        self.0.lines.send_modify(|n| *n += 1);
        Ok(entry)
    }

    /// Writes down what came of it.
    pub fn came_of(
        &self,
        asked: &AuditEntry,
        result: &str,
        reason: &str,
        took: Duration,
    ) -> io::Result<()> {
        let entry = AuditEntry {
            at_ms: now_ms(),
            result: result.to_owned(),
            reason: reason.to_owned(),
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            ..asked.clone()
        };
        let mut writer = self.0.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.append(&entry)?;
        drop(writer);
        self.0.lines.send_modify(|n| *n += 1);
        Ok(())
    }

    /// The entries from a place in the file on, and the place after them.
    pub fn read(&self, from: u64) -> io::Result<(Vec<AuditEntry>, u64)> {
        read_from(&self.0.path, from)
    }

    /// Changes with every line.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.lines.subscribe()
    }
}

impl Writer {
    fn append(&mut self, entry: &AuditEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()
    }
}

/// Whole lines only: one that is being written is for the next time. Lines that are no entries, as
/// a crash may leave, are passed over.
fn read_from(path: &Path, from: u64) -> io::Result<(Vec<AuditEntry>, u64)> {
    let mut file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), from)),
        file => file?,
    };
    file.seek(SeekFrom::Start(from))?;
    let (mut reader, mut at) = (BufReader::new(file), from);
    let (mut entries, mut line) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        if read == 0 || !line.ends_with(b"\n") {
            return Ok((entries, at));
        }
        at += read as u64;
        entries.extend(serde_json::from_slice::<AuditEntry>(&line).ok());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_request_is_on_disk_before_it_acts_and_numbers_go_on_after_a_crash() {
        let temp = tempfile::tempdir().unwrap();
        let audit = Audit::open(temp.path()).unwrap();
        let asked = audit
            .asked("uid 7", "inject", "{\"fault\":\"kill\"}")
            .unwrap();
        let text = std::fs::read_to_string(temp.path().join(FILE)).unwrap();
        assert!(text.contains("\"result\":\"asked\""), "{text}");
        let took = Duration::from_millis(30);
        audit
            .came_of(&asked, "refused", "it is protected", took)
            .unwrap();
        drop(audit);
        // A crash in the middle of a line.
        let mut file = OpenOptions::new()
            .append(true)
            .open(temp.path().join(FILE))
            .unwrap();
        file.write_all(b"{\"id\":2,\"wh").unwrap();
        let audit = Audit::open(temp.path()).unwrap();
        let again = audit.asked("uid 7", "stop", "{}").unwrap();
        let (entries, end) = audit.read(0).unwrap();
        let seen: Vec<(u64, &str, &str)> = entries
            .iter()
            .map(|e| (e.id, e.what.as_str(), e.result.as_str()))
            .collect();
        assert_eq!(
            seen,
            [
                (1, "inject", "asked"),
                (1, "inject", "refused"),
                (2, "stop", "asked")
            ]
        );
        assert_eq!(again.id, 2);
        assert_eq!(audit.read(end).unwrap(), (vec![], end));
    }

    #[test]
    fn only_its_owner_can_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        drop(Audit::open(temp.path()).unwrap());
        let mode = std::fs::metadata(temp.path().join(FILE))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
