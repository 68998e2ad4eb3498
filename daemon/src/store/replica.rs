//! The store as another machine has it, made of its log: a base, and the groups after it.
//!
//! ```text
//!  STATE/db.loading ◄── a base, part by part ── its position written last ──► renamed to STATE/db
//!  STATE/db         ◄── groups, as they come                              ──► the store of a daemon that goes on
//! ```
//! Whatever ends it in the middle, `STATE/db` is a store that was somewhere in the log, or is not there.
use super::database::{self, batch_of};
use super::error::StoreError;
use super::keys::Key;
use super::lock::StateLock;
use super::parts::Get;
use super::reader::Reader;
use robust_grouplog::{BaseEntry, Entry, Position};
use std::path::{Path, PathBuf};

/// Where a base is read into.
const LOADING: &str = "db.loading";
/// What was there before, until what was loaded is in its place.
const FORMER: &str = "db.former";

/// A copy of a store, which nobody but its log writes. It holds the state directory.
pub struct Replica {
    dir: PathBuf,
    db: Option<sled::Db>,
    at: Option<Position>,
    _lock: StateLock,
}

/// A base that is being read.
pub struct Loading {
    path: PathBuf,
    db: sled::Db,
}

impl Replica {
    /// Of what lies in a state directory, if anything does.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        std::fs::create_dir_all(dir).map_err(|e| StoreError::io("make", dir, e))?;
        let lock = StateLock::take(dir)?;
        let path = dir.join("db");
        let opened = path.exists().then(|| database::open_existing(&path));
        let db = match opened.transpose() {
            // The log has all of it.
            Err(StoreError::Corrupt { detail, .. }) => {
                let note = database::set_aside(&path, detail)?;
                tracing::warn!("{note}; it is read from the job's log anew");
                None
            }
            db => db?,
        };
        let at = db.as_ref().map(|db| position(db, &path)).transpose()?;
        Ok(Self {
            dir: dir.to_owned(),
            at: at.flatten(),
            db,
            _lock: lock,
        })
    }

    /// Whether there is no store at all.
    pub fn is_empty(&self) -> bool {
        self.db.is_none()
    }

    /// Where in its log it stands; none where it has no place there.
    pub fn at(&self) -> Option<Position> {
        self.at
    }

    /// Begins to read a base, which takes the place of what there is.
    pub fn load(&self) -> Result<Loading, StoreError> {
        let path = self.dir.join(LOADING);
        remove(&path)?;
        let db = database::open_existing(&path)?;
        Ok(Loading { path, db })
    }

    /// A base was read whole, up to there.
    pub fn loaded(&mut self, base: Loading, at: Position) -> Result<(), StoreError> {
        let Loading { path, db } = base;
        let mut batch = sled::Batch::default();
        batch.insert(Key::Group.encode(), &at.number.to_be_bytes());
        let (key, value) = place(&at);
        batch.insert(key, value);
        let failed = |e| StoreError::sled("write", &path, e);
        db.apply_batch(batch).map_err(failed)?;
        db.flush().map_err(failed)?;
        drop(db);
        synced(&path.join("db"))?;
        let (to, former) = (self.dir.join("db"), self.dir.join(FORMER));
        self.db = None;
        self.at = None;
        remove(&former)?;
        if to.exists() {
            std::fs::rename(&to, &former).map_err(|e| StoreError::io("rename", &to, e))?;
        }
        std::fs::rename(&path, &to).map_err(|e| StoreError::io("rename", &path, e))?;
        synced(&self.dir)?;
        remove(&former)?;
        self.db = Some(database::open_existing(&to)?);
        self.at = Some(at);
        Ok(())
    }

    /// Applies groups that follow where it stands.
    pub fn apply(&mut self, entries: Vec<Entry>) -> Result<(), StoreError> {
        let path = self.dir.join("db");
        let Some(db) = &self.db else {
            return Err(StoreError::Closed);
        };
        let failed = |e| StoreError::sled("write", &path, e);
        for entry in entries {
            if Some(entry.after) != self.at {
                let detail = format!("{} does not follow it", entry.at);
                return Err(StoreError::Corrupt { path, detail });
            }
            let mut group = entry.group;
            group.writes.push(stored_position(&entry.at));
            db.apply_batch(batch_of(group)).map_err(failed)?;
            self.at = Some(entry.at);
        }
        db.flush().map_err(failed)?;
        synced(&path.join("db"))
    }

    /// What runs on another machine is none of this one's processes.
    pub fn forget_processes(&self) -> Result<(), StoreError> {
        let path = self.dir.join("db");
        let failed = |e| StoreError::sled("write", &path, e);
        let Some(db) = &self.db else { return Ok(()) };
        let mut batch = sled::Batch::default();
        for key in db.scan_prefix(b"i").keys() {
            batch.remove(key.map_err(failed)?);
        }
        db.apply_batch(batch).map_err(failed)?;
        db.flush().map(drop).map_err(failed)
    }

    /// The files of the state directory that came with it, as they are kept.
    pub fn files(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        match &self.db {
            Some(db) => files(db, &self.dir.join("db")),
            None => Ok(Vec::new()),
        }
    }
}

impl Loading {
    /// A part of the base.
    pub fn add(&mut self, entries: Vec<BaseEntry>) -> Result<(), StoreError> {
        let mut batch = sled::Batch::default();
        for (key, value) in entries {
            batch.insert(key, value);
        }
        let failed = |e| StoreError::sled("write", &self.path, e);
        self.db.apply_batch(batch).map_err(failed)?;
        self.db.flush().map(drop).map_err(failed)
    }
}

/// The write that says where in its log a store stands, as other short values are kept.
pub fn stored_position(at: &Position) -> (Vec<u8>, Option<Vec<u8>>) {
    let (key, value) = place(at);
    (key, Some(value))
}

fn place(at: &Position) -> (Vec<u8>, Vec<u8>) {
    let value = [&[0], &at.to_bytes()[..]].concat();
    (Key::Position.encode(), value)
}

/// Notes where a database stands that did not change.
pub(super) fn stand_at(db: &sled::Db, path: &Path, at: &Position) -> Result<(), StoreError> {
    let (key, value) = place(at);
    let failed = |e| StoreError::sled("write", path, e);
    db.insert(key, value).map_err(failed)?;
    db.flush().map(drop).map_err(failed)
}

/// The files of the state directory that a database has, as they are kept.
pub(super) fn files(db: &sled::Db, path: &Path) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
    let reader = Reader::new(db, path);
    let mut files = Vec::new();
    for key in reader.table(b'f') {
        let key = key?;
        if let (Some(Key::File(name)), Some(bytes)) = (Key::decode(&key), reader.get(&key)?) {
            files.push((name, bytes));
        }
    }
    Ok(files)
}

/// Where in its log a database stands; none where it wrote something without one.
pub(super) fn position(db: &sled::Tree, path: &Path) -> Result<Option<Position>, StoreError> {
    let found = Reader::new(db, path).get(&Key::Position.encode())?;
    let at = found.as_deref().and_then(Position::from_bytes);
    let number = database::last_group(db, path)?;
    Ok(at.filter(|at| at.number == number))
}

/// What a base has of a database: some entries after a key, and none after the last.
pub fn dump(
    db: &sled::Tree,
    path: &Path,
    after: Option<&[u8]>,
) -> Result<Vec<BaseEntry>, StoreError> {
    use std::ops::Bound::{Excluded, Unbounded};
    /// Some MiB of most values.
    const ENTRIES: usize = 4096;
    const BYTES: usize = 4 << 20;
    let mut entries = Vec::new();
    let mut bytes = 0;
    for entry in db.range::<&[u8], _>((after.map_or(Unbounded, Excluded), Unbounded)) {
        let (key, value) = entry.map_err(|e| StoreError::sled("scan", path, e))?;
        // Of a base, its name says where it stands.
        if is_place(&key) {
            continue;
        }
        bytes += key.len() + value.len();
        entries.push((key.to_vec(), value.to_vec()));
        if entries.len() >= ENTRIES || bytes >= BYTES {
            break;
        }
    }
    Ok(entries)
}

/// What is there survives a power cut.
fn synced(path: &Path) -> Result<(), StoreError> {
    let opened = std::fs::File::open(path);
    let synced = opened.and_then(|file| file.sync_all());
    synced.map_err(|e| StoreError::io("sync", path, e))
}

fn remove(path: &Path) -> Result<(), StoreError> {
    match std::fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(StoreError::io("remove", path, e))
        }
        _ => Ok(()),
    }
}

fn is_place(key: &[u8]) -> bool {
    key == Key::Group.encode() || key == Key::Position.encode()
}

#[cfg(test)]
impl Replica {
    /// As if it had come there.
    pub fn stand_at_for_tests(&mut self, at: Position) {
        self.at = Some(at);
    }
}
