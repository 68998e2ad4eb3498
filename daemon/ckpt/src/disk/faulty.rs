//! A disk that fails at a chosen operation, for tests.
//!
//! ```text
//!  operations   1   2   3  ...  n-1 │ n                    │ n+1 ...
//!  Fails        done on disk ...    │ the error            │ done again (a lasting fault: fails again)
//!  PowerCut     done on disk ...    │ nothing is done any more, and `power_cut` takes back whatever
//!                                   │ no sync made durable
//! ```
//! What a power cut leaves of the rest is the file system's choice; this one chooses the worst: of a
//! file that was not synced half its length stays, as zeros; a name that was made, replaced or removed
//! since its folder was synced is as it was before.
use super::{ALIGN, Disk, DiskFile, Open, RealDisk, Space};
use std::collections::BTreeSet;
use std::mem::take;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fs, io};

/// What a test can make fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A folder is made.
    MakeDir,
    /// A file is opened for writing.
    Open,
    /// Bytes are written.
    Write,
    /// A file's length is set.
    SetLen,
    /// A file is synced.
    Sync,
    /// A name is changed.
    Rename,
    /// A second name is given.
    Link,
    /// A file or folder is removed.
    Remove,
    /// A folder's names are synced.
    SyncDir,
}

impl Operation {
    /// Whether it needs room.
    fn takes_space(self) -> bool {
        use Operation::{Link, MakeDir, Open, Rename, SetLen, Sync, Write};
        matches!(self, MakeDir | Open | Write | SetLen | Sync | Rename | Link)
    }
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Once, with `EIO`.
    Io,
    /// With `ENOSPC`, this and every later one that needs room, until [`FaultyDisk::heal`].
    Full,
    /// A write takes half of its bytes, and what follows fails as on a full disk. Other operations
    /// than writes are done, this once.
    Short,
    /// The machine is gone: nothing is done from here on.
    PowerCut,
}

/// How a change of a name is taken back.
#[derive(Debug)]
enum Undo {
    Made(PathBuf),
    /// From, to, and where the stash has what the new name stood for before.
    Renamed(PathBuf, PathBuf, Option<PathBuf>),
    Removed(PathBuf, PathBuf),
    RemovedDir(PathBuf),
}

/// A disk that fails. See the module's doc.
#[derive(Clone, Debug)]
pub struct FaultyDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Keeps what a power cut brings back.
    stash: PathBuf,
    stashed: u64,
    plan: Option<(u64, Fault)>,
    done: Vec<Operation>,
    full: bool,
    off: bool,
    /// Files whose contents are not durable.
    dirty: BTreeSet<PathBuf>,
    /// Those of which the kernel forgot contents when it could not write them.
    lost: BTreeSet<PathBuf>,
    /// Changes of names that are not durable, oldest first.
    undo: Vec<Undo>,
}

impl FaultyDisk {
    /// Everything works; operations are counted. `stash` is an empty folder on the same file system.
    pub fn new(stash: &Path) -> Self {
        let stash = stash.to_owned();
        Self(Arc::new(Mutex::new(State {
            stash,
            ..State::default()
        })))
    }

    /// The `at`-th operation from now on fails (from 1).
    pub fn fail_at(&self, at: u64, fault: Fault) {
        let mut state = self.state();
        state.done.clear();
        state.plan = Some((at, fault));
    }

    /// There is no room until it heals.
    pub fn fill(&self) {
        self.state().full = true;
    }

    /// Everything works again, and there is room.
    pub fn heal(&self) {
        let mut state = self.state();
        (state.plan, state.full, state.off) = (None, false, false);
    }

    /// The operations since the last plan, the failed ones too.
    pub fn operations(&self) -> Vec<Operation> {
        self.state().done.clone()
    }

    /// What a power cut leaves: all that no sync made durable is taken back. The disk works again.
    pub fn power_cut(&self) -> io::Result<()> {
        let mut state = self.state();
        let (dirty, undo) = (take(&mut state.dirty), take(&mut state.undo));
        dirty.iter().try_for_each(|path| lose(path))?;
        undo.into_iter().rev().try_for_each(Undo::take_back)?;
        state.lost.clear();
        (state.plan, state.off) = (None, false);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Counts an operation, and says how it is to fail, if it is.
    fn step(&mut self, operation: Operation) -> io::Result<()> {
        self.done.push(operation);
        let now = self.done.len() as u64;
        let fault = self
            .plan
            .filter(|(at, _)| *at == now)
            .map(|(_, fault)| fault);
        match fault {
            Some(Fault::Io) => return Err(rustix::io::Errno::IO.into()),
            Some(Fault::Full | Fault::Short) => self.full = true,
            Some(Fault::PowerCut) => self.off = true,
            None => {}
        }
        if self.off {
            Err(io::Error::other("the machine is off"))
        } else if self.full && operation.takes_space() && fault != Some(Fault::Short) {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    fn is_short(&self) -> bool {
        let now = self.done.len() as u64;
        self.plan == Some((now, Fault::Short))
    }

    /// Another name for what a change is about to lose.
    fn keep(&mut self, path: &Path) -> io::Result<PathBuf> {
        self.stashed += 1;
        let kept = self.stash.join(self.stashed.to_string());
        match path.is_dir() {
            true => Err(io::ErrorKind::DirectoryNotEmpty.into()),
            false => fs::hard_link(path, &kept).map(|()| kept),
        }
    }

    fn follow(&mut self, from: &Path, to: &Path) {
        for set in [&mut self.dirty, &mut self.lost] {
            *set = take(set)
                .into_iter()
                .map(|path| match path.strip_prefix(from) {
                    Ok(rest) if rest.as_os_str().is_empty() => to.to_owned(),
                    Ok(rest) => to.join(rest),
                    Err(_) => path,
                })
                .collect();
        }
    }
}

impl Undo {
    /// The folder whose sync makes it durable.
    fn folder(&self) -> Option<&Path> {
        match self {
            Self::Made(path)
            | Self::Renamed(_, path, _)
            | Self::Removed(path, _)
            | Self::RemovedDir(path) => path.parent(),
        }
    }

    fn take_back(self) -> io::Result<()> {
        match self {
            Self::Made(path) if path.is_dir() => fs::remove_dir_all(path),
            Self::Made(path) => fs::remove_file(path),
            Self::Renamed(from, to, before) => {
                fs::rename(&to, from)?;
                before.map_or(Ok(()), |kept| fs::rename(kept, to))
            }
            Self::Removed(path, kept) => fs::rename(kept, path),
            Self::RemovedDir(path) => fs::create_dir(path),
        }
    }
}

/// The contents of a file that nobody synced: half as long, zeros.
fn lose(path: &Path) -> io::Result<()> {
    let length = fs::metadata(path)?.len() / 2;
    let file = fs::File::create(path)?;
    file.set_len(length)
}

impl Disk for FaultyDisk {
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step(Operation::MakeDir)?;
        RealDisk.make_dir(path)?;
        state.undo.push(Undo::Made(path.to_owned()));
        Ok(())
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.step(Operation::Open)?;
        let is_new = !path.exists();
        let inner = RealDisk.open(path, how)?;
        if is_new {
            state.undo.push(Undo::Made(path.to_owned()));
        }
        if is_new || !how.keep {
            state.dirty.insert(path.to_owned());
            state.lost.remove(path);
        }
        let (disk, path) = (self.clone(), path.to_owned());
        Ok(Box::new(FaultyFile { disk, path, inner }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step(Operation::Rename)?;
        let before = match to.exists() {
            true => Some(state.keep(to)?),
            false => None,
        };
        RealDisk.rename(from, to)?;
        state.dirty.remove(to);
        state.follow(from, to);
        let undo = Undo::Renamed(from.to_owned(), to.to_owned(), before);
        state.undo.push(undo);
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step(Operation::Link)?;
        RealDisk.link(from, to)?;
        state.undo.push(Undo::Made(to.to_owned()));
        if state.dirty.contains(from) {
            state.dirty.insert(to.to_owned());
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step(Operation::Remove)?;
        let kept = state.keep(path)?;
        RealDisk.remove_file(path)?;
        state.dirty.remove(path);
        state.lost.remove(path);
        state.undo.push(Undo::Removed(path.to_owned(), kept));
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step(Operation::Remove)?;
        RealDisk.remove_dir(path)?;
        state.undo.push(Undo::RemovedDir(path.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step(Operation::SyncDir)?;
        RealDisk.sync_dir(path)?;
        state.undo.retain(|undo| undo.folder() != Some(path));
        Ok(())
    }

    fn space(&self, path: &Path) -> io::Result<Space> {
        let room = RealDisk.space(path)?;
        let free = if self.state().full { 0 } else { room.free };
        Ok(Space { free, ..room })
    }
}

struct FaultyFile {
    disk: FaultyDisk,
    path: PathBuf,
    inner: Box<dyn DiskFile>,
}

impl FaultyFile {
    fn synced(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.disk.state();
        if let Err(error) = state.step(Operation::Sync) {
            state.lost.insert(self.path.clone());
            return Err(error);
        }
        sync()?;
        if !state.lost.contains(&self.path) {
            state.dirty.remove(&self.path);
        }
        Ok(())
    }
}

impl DiskFile for FaultyFile {
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        state.step(Operation::Write)?;
        let taken = if state.is_short() {
            bytes.len() / 2 / ALIGN * ALIGN
        } else {
            bytes.len()
        };
        state.dirty.insert(self.path.clone());
        if taken == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.inner.write_at(&bytes[..taken], at)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.step(Operation::SetLen)?;
        state.dirty.insert(self.path.clone());
        self.inner.set_len(bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.synced(|| self.inner.sync())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.synced(|| self.inner.sync_data())
    }
}
