//! Opening sled, and making a batch survive a power cut.
use super::OpenNote;
use super::condition::Condition;
use super::error::StoreError;
use super::keys::{self, Key, VERSION};
use super::lock;
use robust_ckpt::disk::{Disk, RealDisk, Space};
use robust_grouplog::Group;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// sled stores items above a quarter of this in blob files, which it never syncs; see
/// [`super::parts`].
const SEGMENT_BYTES: usize = 2 << 20;

/// The file, in the database's folder so that it is set aside with it, that names the last
/// acknowledged group.
const MARK: &str = "acknowledged";

/// The file, beside it, that makes the next opening read everything: something was found damaged.
const SUSPECT: &str = "suspect";

/// Commits groups. The seam where tests make the disk fail, and where a group is put into the job's log as well.
pub trait Commit: Send {
    /// Applies the group; when this returns, it survives SIGKILL and a power cut.
    fn commit(&mut self, tree: &sled::Tree, group: Group) -> Result<(), StoreError>;

    /// Files that go along with the next group: those that changed, and none for one that is gone. Such a change alone
    /// makes a group.
    fn files(&mut self) -> Vec<(String, Option<Vec<u8>>)> {
        Vec::new()
    }

    /// Hears where conditions of the store are told.
    fn tells(&mut self, _conditions: Box<dyn Fn(Condition) + Send + Sync>) {}

    /// Room where the database is.
    fn space(&self) -> io::Result<Space>;
}

/// The real thing.
#[derive(Debug)]
pub struct SledCommit {
    path: PathBuf,
}

impl SledCommit {
    /// For the database folder `path`.
    pub fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }
}

impl Commit for SledCommit {
    fn commit(&mut self, tree: &sled::Tree, group: Group) -> Result<(), StoreError> {
        tree.apply_batch(batch_of(group))
            .map_err(|e| StoreError::sled("write", &self.path, e))?;
        tree.flush()
            .map_err(|e| StoreError::sled("flush", &self.path, e))?;
        // flush() is sync_file_range, which leaves the drive's cache and the file's length alone.
        let file = self.path.join("db");
        File::open(&file)
            .and_then(|f| f.sync_data())
            .map_err(|e| StoreError::io("sync", &file, e))
    }

    fn space(&self) -> io::Result<Space> {
        RealDisk.space(&self.path)
    }
}

/// All of a group, with its number, as one batch.
pub fn batch_of(group: Group) -> sled::Batch {
    let mut batch = sled::Batch::default();
    batch.insert(Key::Group.encode(), &group.number.to_be_bytes());
    for (key, value) in group.writes {
        match value {
            Some(value) => batch.insert(key, value),
            None => batch.remove(key),
        }
    }
    batch
}

/// Opens `DIR/db`; a damaged one is set aside and a new one made.
pub fn open(dir: &Path) -> Result<(sled::Db, Option<OpenNote>), StoreError> {
    let path = dir.join("db");
    match open_existing(&path) {
        Ok(db) => Ok((db, None)),
        Err(StoreError::Corrupt { detail, .. }) => {
            let note = set_aside(&path, detail)?;
            tracing::error!("{note}");
            Ok((open_existing(&path)?, Some(note)))
        }
        Err(other) => Err(other),
    }
}

/// Opens the database and checks its schema, that nothing acknowledged is missing, and all that
/// is not a trajectory, an event or the journal: those are most of it, and a restart must not wait for
/// them. They are read by [`super::scrub`] while the daemon runs, and here when a reader or the scrub
/// found damage before ([`suspect`]). sled panics on some damage; a panic here is damage too.
pub fn open_existing(path: &Path) -> Result<sled::Db, StoreError> {
    let attempt = catch_unwind(AssertUnwindSafe(|| {
        let config = sled::Config::new()
            .path(path)
            .segment_size(SEGMENT_BYTES)
            .cache_capacity(64 << 20)
            .flush_every_ms(None);
        let db = lock::patiently(|| config.open(), is_held)
            .map_err(|e| StoreError::sled("open", path, e))?;
        check(&db, path)?;
        Ok(db)
    }));
    attempt.unwrap_or_else(|panic| Err(panicked(path, "opening", &panic)))
}

/// sled locks its file too, and has no error of its own for it.
fn is_held(result: &sled::Result<sled::Db>) -> bool {
    matches!(result, Err(sled::Error::Io(e)) if e.to_string().contains("could not acquire lock"))
}

/// A panic inside sled, as the damage it stands for.
pub fn panicked(path: &Path, doing: &str, panic: &(dyn std::any::Any + Send)) -> StoreError {
    let words = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    StoreError::Corrupt {
        path: path.to_owned(),
        detail: format!("{doing}: sled panicked: {words}"),
    }
}

fn check(db: &sled::Db, path: &Path) -> Result<(), StoreError> {
    let corrupt = |detail: String| StoreError::Corrupt {
        path: path.to_owned(),
        detail,
    };
    let version = db
        .get(Key::Version.encode())
        .map_err(|e| StoreError::sled("read", path, e))?;
    let schema = match version {
        None if db.is_empty() => None,
        None => return Err(corrupt("it has entries and no schema version".to_owned())),
        Some(bytes) => {
            let bytes: [u8; 4] = bytes
                .as_ref()
                .try_into()
                .map_err(|_| corrupt("its schema version is no number".to_owned()))?;
            let found = u32::from_be_bytes(bytes);
            if found > VERSION {
                let path = path.to_owned();
                return Err(StoreError::TooNew {
                    path,
                    found,
                    supported: VERSION,
                });
            }
            Some(found)
        }
    };
    read_tables(db, path)?;
    let (found, acknowledged) = (last_group(db, path)?, mark(path));
    if found < acknowledged {
        return Err(corrupt(format!(
            "group {acknowledged} of writes was acknowledged, the log ends at {found}"
        )));
    }
    own(db, path, schema)
}

/// Makes an empty database, or one that an older build wrote, this build's; the older one refuses it
/// from then on.
fn own(db: &sled::Db, path: &Path, schema: Option<u32>) -> Result<(), StoreError> {
    match schema {
        Some(VERSION) => return Ok(()),
        // Schema 2 only added keys, so there is nothing more to do.
        Some(older) => tracing::info!("{}: schema {older} becomes {VERSION}", path.display()),
        None => {}
    }
    // Durable with the first group, before which no key of this schema is written.
    db.insert(Key::Version.encode(), &VERSION.to_be_bytes())
        .map_err(|e| StoreError::sled("write", path, e))?;
    Ok(())
}

/// Reads the small tables; everything where damage was met before.
fn read_tables(db: &sled::Db, path: &Path) -> Result<(), StoreError> {
    let mark = path.join(SUSPECT);
    let suspect = mark.exists();
    let tables = keys::tables().into_iter().filter(|t| suspect || !t.is_long);
    for table in tables {
        for entry in db.scan_prefix([table.tag]) {
            entry.map_err(|e| StoreError::sled("read", path, e))?;
        }
    }
    if suspect {
        // All of it could be read. If this fails, the next opening takes longer again, no more.
        let _ = std::fs::remove_file(mark);
    }
    Ok(())
}

/// Notes beside the database that damage was met: the next opening reads everything, and sets the
/// database aside if that is so.
pub fn suspect(path: &Path, detail: &str) {
    let mark = path.join(SUSPECT);
    if !mark.exists()
        && let Err(e) = std::fs::write(&mark, detail)
    {
        tracing::warn!("cannot write {}: {e}", mark.display());
    }
}

/// The number of the last group in the database.
pub fn last_group(tree: &sled::Tree, path: &Path) -> Result<u64, StoreError> {
    let value = tree
        .get(Key::Group.encode())
        .map_err(|e| StoreError::sled("read", path, e))?;
    let number = value.and_then(|bytes| bytes.as_ref().try_into().ok().map(u64::from_be_bytes));
    Ok(number.unwrap_or(0))
}

/// Notes an acknowledged group beside sled's log. sled drops, without a word, everything after the
/// first damaged message of its log; this tells. Not synced: after a power cut it may lag behind
/// the database, never be ahead of it.
pub fn set_mark(path: &Path, number: u64) {
    let file = path.join(MARK);
    // Overwritten in place: truncating makes some file systems write back at once.
    let marked = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(&file)
        .and_then(|f| f.write_all_at(format!("{number:020}").as_bytes(), 0));
    if let Err(e) = marked {
        tracing::warn!("cannot write {}: {e}", file.display());
    }
}

fn mark(path: &Path) -> u64 {
    let text = std::fs::read_to_string(path.join(MARK));
    text.ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Moves a damaged database away, with what is wrong with it.
pub fn set_aside(path: &Path, reason: String) -> Result<OpenNote, StoreError> {
    let stamp = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis());
    let aside = path.with_file_name(format!("db.corrupt-{stamp}"));
    std::fs::rename(path, &aside).map_err(|e| StoreError::io("set aside", path, e))?;
    let evidence = aside.join("evidence.txt");
    if let Err(e) = std::fs::write(&evidence, format!("{reason}\n{}", listing(&aside))) {
        tracing::warn!("cannot write {}: {e}", evidence.display());
    }
    Ok(OpenNote {
        set_aside: aside,
        reason,
    })
}

fn listing(dir: &Path) -> String {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return String::new();
    };
    entries
        .flatten()
        .map(|e| {
            let bytes = e.metadata().map_or(0, |m| m.len());
            format!("{} {bytes} bytes\n", e.file_name().to_string_lossy())
        })
        .collect()
}
