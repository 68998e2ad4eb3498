//! Who writes a folder: one process at a time.
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// A lock on a folder. Dropping it lets go, and so does the end of the process, whatever it ends of.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Takes that of this folder; where the one that is held is of this folder, that.
    pub fn of(folder: &Path, held: Option<Lock>) -> io::Result<Self> {
        let file = File::open(folder)?;
        if let Some(held) = held
            && is_same(&held.0, &file)?
        {
            return Ok(held);
        }
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                "another `robustctl export` writes this run there",
            )),
            // Some file systems of networks know no locks; whoever exports to one does it once at a time.
            Err(TryLockError::Error(_)) => Ok(Self(file)),
        }
    }
}

fn is_same(one: &File, other: &File) -> io::Result<bool> {
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}
