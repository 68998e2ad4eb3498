//! The list of a living engine's shared memory, kept in a file for who comes after.
use super::sweep::{Swept, sweep_list};
use super::{FOLDER, Segment, folder, is_plain};
use crate::proc::Stat;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const VERSION: u32 = 1;
const PREFIX: &str = "shm-";
const SUFFIX: &str = ".json";

/// Why a ledger cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The shared memory, or the caller's own start time, cannot be read.
    #[error("cannot look at {path}: {source}")]
    Look {
        /// What was looked at.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
    /// The ledger cannot be written.
    #[error("cannot write the ledger {path}: {source}")]
    Write {
        /// Its path.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

/// What is in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    version: u32,
    /// Shared memory is gone with the boot, and numbers begin anew.
    boot: String,
    /// The device of `/dev/shm`: inodes of another one are other files.
    device: u64,
    owner_pid: u32,
    owner_start_time: u64,
    pub segments: BTreeSet<Segment>,
}

/// The shared memory of one engine's life, written down while it lives. The file is named by the
/// process that keeps it, so several may keep theirs in one folder.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    contents: Contents,
    /// What was in `/dev/shm` before the engine.
    earlier: BTreeSet<Segment>,
    looks: Looks,
}

/// When it was looked at what the engine holds.
#[derive(Debug, Default)]
struct Looks {
    /// What lay in `/dev/shm` then that nobody knew, since when, and when the look was.
    last: Option<(BTreeSet<Segment>, Instant, Instant)>,
}

/// So long something new may be held by a process that is not known yet.
const SETTLES: Duration = Duration::from_secs(3);
/// After so long what was somebody else's may be the engine's.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

impl Looks {
    /// Whether a look is due, with this lying there unknown; then it is done now.
    fn is_due(&mut self, now: Instant, unknown: BTreeSet<Segment>) -> bool {
        let (since, at) = match &self.last {
            Some((before, since, at)) if *before == unknown => (*since, *at),
            _ => (now, now),
        };
        let settles = now.saturating_duration_since(since) < SETTLES;
        let due = settles || now.saturating_duration_since(at) >= LOOK_AGAIN;
        if unknown.is_empty() || due {
            self.last = Some((unknown.clone(), since, now));
        }
        due && !unknown.is_empty()
    }
}

impl Ledger {
    /// Begins the ledger of this process in a folder; to be called before the engine starts,
    /// since what is in `/dev/shm` by now is not the engine's.
    pub fn begin(folder: &Path) -> Result<Self, LedgerError> {
        let look = |path: &Path, source| LedgerError::Look {
            path: path.to_owned(),
            source,
        };
        let own = std::process::id();
        let stat = Stat::read(own).map_err(|e| look(Path::new("/proc/self/stat"), e))?;
        let device = device().map_err(|e| look(Path::new(FOLDER), e))?;
        let earlier = present().map_err(|e| look(Path::new(FOLDER), e))?;
        let file = format!("{PREFIX}{own}-{}{SUFFIX}", stat.start_time);
        let ledger = Self {
            path: folder.join(file),
            contents: Contents {
                version: VERSION,
                boot: boot(),
                device,
                owner_pid: own,
                owner_start_time: stat.start_time,
                segments: BTreeSet::new(),
            },
            earlier,
            looks: Looks::default(),
        };
        ledger.contents.write(&ledger.path)?;
        Ok(ledger)
    }

    /// Whether it is time to look at what the engine holds, which is dear, for its processes' maps are long:
    /// when something lies in `/dev/shm` that is not listed and was not there before the engine, and is new
    /// or was not looked for in a while.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let listed = &self.contents.segments;
        let unknown = |s: &Segment| !self.earlier.contains(s) && !listed.contains(s);
        match present() {
            Ok(there) => self
                .looks
                .is_due(now, there.into_iter().filter(unknown).collect()),
            Err(_) => true,
        }
    }

    /// Adds what the engine holds now. What it held earlier stays, for as long as it lies there:
    /// the process that held it may have died. Writes only when something changed.
    pub fn note(&mut self, held: BTreeSet<Segment>) -> Result<(), LedgerError> {
        let look = |source: rustix::io::Errno| LedgerError::Look {
            path: FOLDER.into(),
            source: source.into(),
        };
        let folder = folder().map_err(look)?;
        let mut segments = self.contents.segments.clone();
        let own = |segment: &Segment| is_plain(&segment.name) && !self.earlier.contains(segment);
        segments.extend(held.into_iter().filter(own));
        segments.retain(|segment| !matches!(segment.stat(&folder), Ok(None)));
        if segments != self.contents.segments {
            let mut contents = self.contents.clone();
            contents.segments = segments;
            contents.write(&self.path)?;
            self.contents = contents;
        }
        Ok(())
    }

    /// What is listed.
    pub fn segments(&self) -> &BTreeSet<Segment> {
        &self.contents.segments
    }

    /// Removes what is listed and no living process uses; to be called after the engine's end.
    /// What must stay stays listed, for a later [`sweep`](crate::sweep) of the folder.
    pub fn sweep(self) -> Result<Swept, LedgerError> {
        self.contents.sweep(&self.path)
    }
}

impl Contents {
    /// Every ledger in the folder whose keeper is dead. Files that are no ledgers are left alone.
    pub fn of_the_dead(folder: &Path) -> impl Iterator<Item = (PathBuf, Self)> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let named = entries.filter(|entry| {
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            name.starts_with(PREFIX) && name.ends_with(SUFFIX)
        });
        named.filter_map(|entry| {
            let path = entry.path();
            let read = Self::read(&path);
            let read = read.inspect_err(|e| tracing::warn!("cannot read {}: {e}", path.display()));
            let contents = read.ok().filter(|contents| !contents.owner_lives())?;
            Some((path, contents))
        })
    }

    fn read(path: &Path) -> io::Result<Self> {
        let mut contents: Self = serde_json::from_slice(&fs::read(path)?)?;
        if contents.version != VERSION {
            let unknown = format!("version {} is not known", contents.version);
            return Err(io::Error::new(io::ErrorKind::Unsupported, unknown));
        }
        contents.segments.retain(|segment| is_plain(&segment.name));
        Ok(contents)
    }

    fn owner_lives(&self) -> bool {
        self.boot == boot()
            && Stat::read(self.owner_pid)
                .is_ok_and(|s| s.start_time == self.owner_start_time && !s.is_zombie())
    }

    /// Whoever dies on the way leaves the old file or the new one.
    fn write(&self, path: &Path) -> Result<(), LedgerError> {
        let new = path.with_extension("new");
        let text = serde_json::to_vec(self).map_err(io::Error::from);
        let written = text.and_then(|text| {
            fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            fs::write(&new, text)?;
            fs::rename(&new, path)
        });
        written.map_err(|source| LedgerError::Write {
            path: path.to_owned(),
            source,
        })
    }

    /// Sweeps what is listed, and leaves a ledger of what must stay.
    pub fn sweep(mut self, path: &Path) -> Result<Swept, LedgerError> {
        let same = self.boot == boot() && device().is_ok_and(|device| device == self.device);
        let swept = if same {
            sweep_list(&self.segments)
        } else {
            Swept::default()
        };
        if swept.kept.is_empty() {
            // Two may sweep at once: the other one was faster.
            let _ = fs::remove_file(path);
        } else {
            self.segments = swept.kept.iter().map(|(s, _)| s.clone()).collect();
            self.write(path)?;
        }
        Ok(swept)
    }
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.unwrap_or_default().trim().to_owned()
}

fn device() -> io::Result<u64> {
    Ok(fs::metadata(FOLDER)?.dev())
}

fn present() -> io::Result<BTreeSet<Segment>> {
    let segment = |entry: fs::DirEntry| {
        Some(Segment {
            name: entry.file_name().into_string().ok()?,
            inode: entry.ino(),
        })
    };
    Ok(fs::read_dir(FOLDER)?
        .flatten()
        .filter_map(segment)
        .collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_is_new_or_long_not_looked_for_is_looked_for() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let there = |names: &[&str]| -> BTreeSet<Segment> {
            let segment = |(inode, name): (usize, &&str)| Segment {
                name: (*name).to_owned(),
                inode: inode as u64,
            };
            names.iter().enumerate().map(segment).collect()
        };
        let mut looks = Looks::default();
        assert!(!looks.is_due(at(0), there(&[])), "nothing lies there");
        assert!(looks.is_due(at(100), there(&["a"])), "it is new");
        assert!(
            looks.is_due(at(102), there(&["a"])),
            "whose it is may not be known yet"
        );
        assert!(!looks.is_due(at(103), there(&["a"])));
        assert!(looks.is_due(at(104), there(&["a", "b"])), "one more");
        assert!(looks.is_due(at(106), there(&["a", "b"])));
        assert!(!looks.is_due(at(115), there(&["a", "b"])));
        assert!(
            looks.is_due(at(116), there(&["a", "b"])),
            "ten seconds after the last look"
        );
        assert!(!looks.is_due(at(117), there(&["a", "b"])));
    }

    #[test]
    fn a_ledger_lists_no_path_outside_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shm-1-1.json");
        let names = ["../etc/x", "/etc/x", "..", ".", "", "a/b", "psm_1"];
        let segments = names.map(|name| serde_json::json!({"name": name, "inode": 1}));
        let text = serde_json::json!({
            "version": 1, "boot": "b", "device": 1, "owner_pid": 1, "owner_start_time": 1,
            "segments": segments,
        });
        fs::write(&path, text.to_string()).unwrap();
        let read = Contents::read(&path).unwrap();
        let names: Vec<_> = read.segments.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["psm_1"]);
    }

    #[test]
    fn a_ledger_that_cannot_be_read_stops_no_other() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("shm-1-1.json"), "{").unwrap();
        fs::write(folder.path().join("other.json"), "{}").unwrap();
        let mut contents = Ledger::begin(folder.path()).unwrap().contents;
        assert_eq!(Contents::of_the_dead(folder.path()).count(), 0, "it lives");
        contents.owner_start_time += 1;
        contents.write(&folder.path().join("shm-2-2.json")).unwrap();
        assert_eq!(Contents::of_the_dead(folder.path()).count(), 1);
    }
}
