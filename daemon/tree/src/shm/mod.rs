//! What a tree holds in `/dev/shm`, and what of it stays behind.
//!
//! ```text
//! mapped(members) ──Ledger::note──► file of the owner ──(all are dead)──► sweep ──► Swept
//! ```
//! Files there outlive the processes that made them: a killed engine leaves hundreds of megabytes
//! each time. Which files are its own can only be seen while it lives, so they are written down.
//!
//! Only files right in `/dev/shm` are meant, where `shm_open` and `sem_open` put them: folders
//! there (weights, snapshots) belong to who made them. What was there before the engine is not
//! its own either, even when it maps it.
mod lease;
mod ledger;
mod sweep;
mod users;

pub use ledger::{Ledger, LedgerError};
pub use sweep::{Kept, Removed, Swept, sweep};
pub use users::mapped;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, open, statat};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The folder of POSIX shared memory.
const FOLDER: &str = "/dev/shm";

/// A file right in `/dev/shm`, told from a later one of the same name by its inode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Segment {
    /// Its name in that folder.
    pub name: String,
    /// Its inode.
    pub inode: u64,
}

impl Segment {
    /// Where it lies.
    pub fn path(&self) -> PathBuf {
        Path::new(FOLDER).join(&self.name)
    }

    /// What lies under its name now, when that is still this file and a regular one.
    fn stat(&self, folder: &OwnedFd) -> rustix::io::Result<Option<Stat>> {
        let stat = match statat(folder, self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error),
        };
        let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        Ok((regular && stat.st_ino == self.inode).then_some(stat))
    }
}

/// Opened once, so that everything after it is about the same folder.
fn folder() -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    open(FOLDER, flags, Mode::empty())
}

/// A name that stays within the folder.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}
