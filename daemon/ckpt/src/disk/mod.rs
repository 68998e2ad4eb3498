//! The one way to durable files: shards, manifests, pins, marks and job files are written, synced,
//! renamed and removed through a [`Disk`], so that tests can make every single operation fail
//! ([`faulty`]).
//!
//! ```text
//!  open ──► write_at … set_len ──► sync ──► rename ──► sync_dir      durable, and all at once
//!    └────── any of them fails: remove_file, and the error is told
//! ```
//! Reading needs no seam: what is read is checked against a digest, wherever it was damaged.
pub mod faulty;
mod real;

pub use real::RealDisk;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What direct I/O wants addresses, offsets and lengths to be multiples of.
pub const ALIGN: usize = 4096;

/// How a file is opened for writing. It is made where it is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Past the page cache; a file system that cannot says so here or at the first write, with
    /// [`io::ErrorKind::InvalidInput`].
    pub direct: bool,
    /// What is there is an error.
    pub exclusive: bool,
    /// What is there stays, and is written over in place.
    pub keep: bool,
    /// Its permissions where it is made.
    pub mode: u32,
}

impl Open {
    /// Replaces what is there.
    pub const REPLACE: Self = Self {
        direct: false,
        exclusive: false,
        keep: false,
        mode: 0o666,
    };
    /// Replaces what is there, past the page cache.
    pub const DIRECT: Self = Self {
        direct: true,
        ..Self::REPLACE
    };
    /// Writes over what is there.
    pub const IN_PLACE: Self = Self {
        keep: true,
        ..Self::REPLACE
    };
    /// A new file for its owner alone.
    pub const PRIVATE: Self = Self {
        exclusive: true,
        mode: 0o600,
        ..Self::REPLACE
    };
}

/// Room on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that may still be written.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}

/// A file that is being written. Blocks may be written from several threads.
pub trait DiskFile: Send + Sync {
    /// Writes at a place; how many bytes were taken, fewer than given now and then.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;
    /// Cuts the file, or makes it longer by zeros.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Contents and length survive a power cut when this returns. After an error they are lost,
    /// whatever a second call says: the kernel forgets what it could not write.
    fn sync(&self) -> io::Result<()>;
    /// Like [`Self::sync`] for a file whose length is durable.
    fn sync_data(&self) -> io::Result<()>;
}

impl dyn DiskFile + '_ {
    /// Writes all of it.
    pub fn write_all_at(&self, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write_at(bytes, at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(taken) => {
                    bytes = bytes.get(taken..).unwrap_or_default();
                    at += taken as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Where files are made. Names are durable once their folder is synced.
pub trait Disk: Send + Sync + Debug {
    /// Makes a folder; one that is there is an error.
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    /// Opens a file for writing.
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>>;
    /// Gives a file or folder another name, replacing what has it.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name, which must be free.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove_file(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Room on the file system that holds `path`.
    fn space(&self, path: &Path) -> io::Result<Space>;
}

/// The machine's own disk.
pub fn real() -> Arc<dyn Disk> {
    Arc::new(RealDisk)
}
