//! The daemon's durable memory: journal, core's state, trajectories, events, processes, checkpoints.
//!
//! sled holds what is small and transactional, in `STATE/db`; [`keys`] registers every key.
//! A write is acknowledged when it survives SIGKILL and a power cut: batches are applied by one
//! committer thread, flushed, and the database file is synced ([`database`]). Reads see only what
//! was applied. One process at a time ([`lock`]).
mod check;
mod codec;
mod commits;
mod committer;
mod condition;
pub mod database;
mod durable;
mod error;
mod history;
pub mod keys;
pub mod lock;
mod notes;
pub mod parts;
mod quota;
mod reader;
mod records;
mod replica;
mod room;
mod scrub;
mod spans;
mod tables;
#[cfg(test)]
mod tests;
mod trajectories;
mod txn;
mod types;

pub use check::Checked;
pub use condition::Condition;
pub use durable::Durable;
pub use error::StoreError;
pub use quota::Quota;
pub use records::AUDIT_KEPT;
pub use replica::{Loading, Replica, dump, stored_position};
pub use room::reserve;
pub use spans::Tokens;
pub use types::*;

use committer::{Committer, Slot};
use condition::Conditions;
use database::{Commit, SledCommit};
use reader::Reader;
use robust_grouplog::{BaseEntry, Position};
use robust_shared::ids::Step;
use robust_shared::time::Time;
use scrub::Scrub;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use txn::Txn;

/// What can be chosen about a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Trajectories of batches older than this many steps are removed when a step commits.
    pub keep_steps: u64,
    /// But none that a step after the oldest of so many newest checkpoints consumed: going back to
    /// it, the steps after it are trained again and nothing is generated again.
    pub keep_checkpoints: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keep_steps: 64,
            keep_checkpoints: 3,
        }
    }
}

/// Where the checkpoints are that a way back may begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WayBack {
    /// On this machine's disk, as the index has them.
    #[default]
    OnDisk,
    /// Elsewhere, and nobody has looked yet: trajectories of all steps are kept.
    Unknown,
    /// Elsewhere: the oldest of the newest ones; none where there is none.
    Elsewhere(Option<Step>),
}

/// The store. Cheap to clone; the last clone finishes what is queued and closes the database.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

/// Reads a whole store while it goes on writing.
#[derive(Clone)]
pub struct Dumper {
    slot: Weak<RwLock<Slot>>,
    path: PathBuf,
}

impl Dumper {
    /// Entries as they are kept, in the order of their keys: some of those after a key, and none after the last.
    pub fn after(&self, after: Option<&[u8]>) -> Result<Vec<BaseEntry>, StoreError> {
        self.with(|db, path| replica::dump(db, path, after))
    }

    /// The number of the last group that it has, whether that counts by now or not.
    pub fn last_group(&self) -> Result<u64, StoreError> {
        self.with(|db, path| database::last_group(db, path))
    }

    /// The database's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn with<T>(
        &self,
        read: impl FnOnce(&sled::Db, &Path) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let slot = self.slot.upgrade().ok_or(StoreError::Closed)?;
        let slot = slot.read().unwrap_or_else(PoisonError::into_inner);
        read(slot.as_ref().map_err(Clone::clone)?, &self.path)
    }
}

/// Fields drop in this order: the threads end before the database closes, and the state
/// directory is free only after both.
struct Inner {
    committer: Committer,
    _scrub: Scrub,
    slot: Arc<RwLock<Slot>>,
    path: PathBuf,
    next_event: Mutex<u64>,
    conditions: Conditions,
    options: Options,
    way_back: Mutex<WayBack>,
    _lock: lock::StateLock,
}

impl Store {
    /// Opens or makes `DIR/db`. A damaged database is set aside, which the note says.
    pub fn open(dir: &Path) -> Result<(Store, Option<OpenNote>), StoreError> {
        Self::open_with(dir, Options::default(), |commit| commit)
    }

    /// Like [`Self::open`], with options, and with the committing step wrapped (fault injection).
    pub fn open_with(
        dir: &Path,
        options: Options,
        wrap: impl FnOnce(Box<dyn Commit>) -> Box<dyn Commit>,
    ) -> Result<(Store, Option<OpenNote>), StoreError> {
        std::fs::create_dir_all(dir).map_err(|e| StoreError::io("make", dir, e))?;
        let lock = lock::StateLock::take(dir)?;
        let path = dir.join("db");
        let (db, note) = database::open(dir)?;
        let slot = Arc::new(RwLock::new(Ok(db)));
        let commit = wrap(Box::new(SledCommit::new(&path)));
        let conditions = Conditions::new();
        let committer =
            Committer::start(path.clone(), Arc::clone(&slot), commit, conditions.clone())
                .map_err(|e| StoreError::io("start the committer of", &path, e))?;
        let scrub = Scrub::start(path.clone(), Arc::clone(&slot), conditions.clone())
            .map_err(|e| StoreError::io("start reading", &path, e))?;
        let next_event = Mutex::new(1);
        let inner = Inner {
            committer,
            _scrub: scrub,
            slot,
            path,
            next_event,
            conditions,
            options,
            way_back: Mutex::default(),
            _lock: lock,
        };
        let store = Store {
            inner: Arc::new(inner),
        };
        let last = store.read(|reader| reader.last_event())?;
        *store
            .inner
            .next_event
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = last + 1;
        Ok((store, note))
    }

    /// What is committed from now on keeps the trajectories that a way back from there needs.
    pub fn set_way_back(&self, way_back: WayBack) {
        *self.way_back_now() = way_back;
    }

    fn way_back_now(&self) -> MutexGuard<'_, WayBack> {
        // It is one word, which is whole whoever panicked.
        self.inner
            .way_back
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until everything queued before is durable, or says why it is not.
    pub fn sync(&self) -> Durable<()> {
        self.submit(|_| Ok(()))
    }

    /// Like [`Self::submit`], for what nobody waits for: on a full disk it is kept and written later.
    fn submit_at_leisure<T, F>(&self, write: F) -> Durable<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Txn<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.inner.committer.submit(write, true)
    }

    fn submit<T, F>(&self, write: F) -> Durable<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Txn<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.inner.committer.submit(write, false)
    }

    /// How it is, as that changes.
    pub fn condition(&self) -> watch::Receiver<Condition> {
        self.inner.conditions.watch()
    }

    /// Where in its log it stands, if it has a place there, and the number of its last group.
    pub fn place_in_log(&self) -> Result<(Option<Position>, u64), StoreError> {
        self.dumper().with(|db, path| {
            let at = replica::position(db, path)?;
            Ok((at, database::last_group(db, path)?))
        })
    }

    /// Where in its log it stands from now on: nothing of it changes.
    pub fn stand_at(&self, at: &Position) -> Result<(), StoreError> {
        self.dumper()
            .with(|db, path| replica::stand_at(db, path, at))
    }

    /// Files of the state directory as they go along with the log; none for one that is gone.
    pub fn put_files(&self, files: Vec<(String, Option<Vec<u8>>)>) -> Durable<()> {
        self.submit(move |txn| txn.files(files))
    }

    /// The names of those that it has.
    pub fn files(&self) -> Result<Vec<String>, StoreError> {
        let files = self.dumper().with(replica::files)?;
        Ok(files.into_iter().map(|(name, _)| name).collect())
    }

    /// What reads all of it, some entries at a time. It keeps no store open.
    pub fn dumper(&self) -> Dumper {
        Dumper {
            slot: Arc::downgrade(&self.inner.slot),
            path: self.inner.path.clone(),
        }
    }

    /// Reads; damage that is met is shown, and looked into when the database is opened next.
    fn read<T>(
        &self,
        read: impl Fn(&Reader<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let inner = &self.inner;
        self.look(read)
            .inspect_err(|error| scrub::found(error, &inner.path, &inner.conditions))
    }

    /// Reads under the slot's lock, so that no handle keeps a failed database open.
    fn look<T>(
        &self,
        read: impl Fn(&Reader<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let slot = self
            .inner
            .slot
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        let db = slot.as_ref().map_err(Clone::clone)?;
        Reader::new(db, &self.inner.path).consistently(read)
    }
}

#[cfg(test)]
impl Store {
    /// A value of this many parts, under a key of its own.
    pub fn put_for_tests(&self, n: u64, value: Vec<u8>) -> Durable<()> {
        self.submit(move |txn| txn.put(&keys::Key::Prompt(n), &value))
    }
}

fn now() -> Time {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Time(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
