//! When a base is made, and how.
use crate::store::{Dumper, StoreError, dump};
use robust_grouplog::{Base, BaseEntry, GroupLog, LogError, Position};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

/// Groups of so many bytes are worth a base, if the last one is not larger: what is read again stays below twice the
/// store, and what is written again below what was written.
const LEAST: u64 = 64 << 20;

/// What it takes to read a group again is a call to the store at least, which is as dear as so many bytes.
const CALL: u64 = 64 << 10;

/// How long a base waits for the groups that may be in it to count.
const SETTLED: Duration = Duration::from_secs(60);

/// Makes bases of a store, in the background while groups go on.
pub(super) struct Bases {
    log: GroupLog,
    dumper: Dumper,
    runtime: Handle,
    /// Bytes of groups since the last one began, with what it takes to ask for them.
    since: u64,
    /// Bytes that it had.
    last: Arc<AtomicU64>,
    busy: Arc<AtomicBool>,
    /// The number of the last group that counts.
    counted: watch::Sender<u64>,
}

impl Bases {
    /// `groups` were written since the last one, by whoever led.
    pub fn new(log: GroupLog, dumper: Dumper, runtime: Handle, groups: u64) -> Self {
        Self {
            log,
            dumper,
            runtime,
            since: groups.saturating_mul(CALL),
            last: Arc::default(),
            busy: Arc::default(),
            counted: watch::Sender::new(0),
        }
    }

    /// Where the store is.
    pub fn path(&self) -> &Path {
        self.dumper.path()
    }

    /// A group is in the log.
    pub fn wrote(&mut self, bytes: u64, at: Position) {
        self.since += bytes.max(CALL);
        self.counted.send_replace(at.number);
        let is_due = self.since >= LEAST.max(self.last.load(Ordering::Acquire));
        if !is_due || self.busy.swap(true, Ordering::AcqRel) {
            return;
        }
        self.since = 0;
        let (log, dumper) = (self.log.clone(), self.dumper.clone());
        let (last, busy) = (Arc::clone(&self.last), Arc::clone(&self.busy));
        let counted = self.counted.subscribe();
        self.runtime.spawn(async move {
            match put(&log, &dumper, at, Some(counted)).await {
                Ok(base) => last.store(base.bytes, Ordering::Release),
                Err(error) => tracing::warn!("no base of the job's log was made: {error}"),
            }
            busy.store(false, Ordering::Release);
        });
    }

    /// A base of a database that nobody writes meanwhile.
    pub async fn put_of(&self, at: Position, tree: &sled::Tree) -> Result<Base, StoreError> {
        let path = self.dumper.path();
        let mut after: Option<Vec<u8>> = None;
        let next = || following(&mut after, |after| dump(tree, path, after));
        self.log.put_base(at, next, async { Ok(()) }).await
    }
}

/// A base of a store up to `at`, at least. Where it goes on writing, it is told which groups count: the database has a
/// group before that is known, and if it never counts, neither does the base.
pub(super) async fn put(
    log: &GroupLog,
    dumper: &Dumper,
    at: Position,
    counted: Option<watch::Receiver<u64>>,
) -> Result<Base, StoreError> {
    let mut after: Option<Vec<u8>> = None;
    let next = || following(&mut after, |after| dumper.after(after));
    let settled = async {
        let Some(mut counted) = counted else {
            return Ok(());
        };
        let has = dumper.last_group()?;
        let settling = timeout(SETTLED, counted.wait_for(|number| *number >= has));
        match settling.await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(StoreError::Closed),
        }
    };
    log.put_base(at, next, settled).await
}

/// The entries after those that were had, and where they end.
fn following(
    after: &mut Option<Vec<u8>>,
    read: impl FnOnce(Option<&[u8]>) -> Result<Vec<BaseEntry>, StoreError>,
) -> Result<Vec<BaseEntry>, StoreError> {
    let entries = read(after.as_deref())?;
    if let Some((key, _)) = entries.last() {
        *after = Some(key.clone());
    }
    Ok(entries)
}

impl From<LogError> for StoreError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}
