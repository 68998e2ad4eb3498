//! Removing what the dead left.
use super::lease::{self, Use};
use super::ledger::{Contents, LedgerError};
use super::users::in_use;
use super::{Segment, folder};
use rustix::fs::{AtFlags, fstat, unlinkat};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// What was removed.
    pub removed: Vec<Removed>,
    /// What was not, and why.
    pub kept: Vec<(Segment, Kept)>,
}

impl Swept {
    /// The memory that was given back.
    pub fn bytes(&self) -> u64 {
        self.removed.iter().map(|removed| removed.bytes).sum()
    }
}

/// A file that a sweep removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Its name in `/dev/shm`.
    pub name: String,
    /// The memory it took: these files are sparse, their size says nothing.
    pub bytes: u64,
}

/// Why a file was not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// A living process maps it or has it open.
    InUse,
    /// Some process could not be looked at, and the kernel does not tell whether it uses the file.
    Hidden,
    /// The system refused, with this error number.
    Failed(i32),
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => f.write_str("a living process uses it"),
            Self::Hidden => f.write_str("a process that may not be looked at could use it"),
            Self::Failed(number) => std::io::Error::from_raw_os_error(*number).fmt(f),
        }
    }
}

/// Sweeps after every keeper of a [`Ledger`](crate::Ledger) in the folder that is dead: removes
/// what it listed and no living process uses, and its ledger with it.
pub fn sweep(folder: &Path) -> Result<Swept, LedgerError> {
    let mut all = Swept::default();
    for (path, contents) in Contents::of_the_dead(folder) {
        let swept = contents.sweep(&path)?;
        all.removed.extend(swept.removed);
        all.kept.extend(swept.kept);
    }
    Ok(all)
}

pub fn sweep_list(listed: &BTreeSet<Segment>) -> Swept {
    let mut swept = Swept::default();
    if listed.is_empty() {
        return swept;
    }
    let opened = folder().and_then(|folder| Ok((fstat(&folder)?.st_dev, folder)));
    let (device, folder) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let failed = Kept::Failed(error.raw_os_error());
            swept.kept = listed.iter().map(|s| (s.clone(), failed)).collect();
            return swept;
        }
    };
    let used = in_use(listed, device);
    for segment in listed {
        let outcome = if used.inodes.contains(&segment.inode) {
            Err(Kept::InUse)
        } else {
            remove(&folder, segment, used.some_hidden)
        };
        match outcome {
            Ok(Some(bytes)) => swept.removed.push(Removed {
                name: segment.name.clone(),
                bytes,
            }),
            Ok(None) => {}
            Err(why) => swept.kept.push((segment.clone(), why)),
        }
    }
    swept
}

/// The bytes it took; `None` when it is gone, or another file has its name by now.
fn remove(
    folder: &rustix::fd::OwnedFd,
    segment: &Segment,
    some_hidden: bool,
) -> Result<Option<u64>, Kept> {
    let failed = |error: Errno| Kept::Failed(error.raw_os_error());
    let Some(stat) = segment.stat(folder).map_err(failed)? else {
        return Ok(None);
    };
    let answer = lease::ask(folder, segment);
    match answer {
        Use::Somebody => return Err(Kept::InUse),
        Use::Untold if some_hidden => return Err(Kept::Hidden),
        Use::Untold | Use::Nobody(_) => {}
    }
    match unlinkat(folder, segment.name.as_str(), AtFlags::empty()) {
        // A file's blocks are counted in units of 512 bytes.
        Ok(()) => Ok(Some(stat.st_blocks.cast_unsigned() * 512)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(failed(error)),
    }
}
