//! One daemon per state directory, by an advisory lock the kernel drops with its holder.
use super::error::StoreError;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a held lock is tried again. Between its fork and its exec, a role's process holds a
/// copy of every lock of the daemon that starts it, even when that daemon is gone by then.
const PATIENCE: Duration = Duration::from_millis(500);

/// Held for as long as the state directory is used. Not inherited by role processes, which must be
/// able to outlive the daemon without keeping its successor out.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

impl StateLock {
    /// Takes `DIR/lock` and writes this process's id into it.
    pub fn take(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|e| StoreError::io("open", &path, e))?;
        let is_held =
            |result: &rustix::io::Result<()>| result == &Err(rustix::io::Errno::WOULDBLOCK);
        let locked = patiently(
            || flock(&file, FlockOperation::NonBlockingLockExclusive),
            is_held,
        );
        match locked {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let read = file.read_to_string(&mut text).ok();
                let pid = read.and_then(|_| text.trim().parse().ok());
                return Err(StoreError::Locked {
                    dir: dir.to_owned(),
                    pid,
                });
            }
            Err(e) => return Err(StoreError::io("lock", &path, e.into())),
        }
        // The number is only for the message above: a full disk must not keep the daemon down.
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        if let Err(e) = written {
            tracing::warn!("cannot write the pid into {}: {e}", path.display());
        }
        Ok(Self { _file: file })
    }
}

/// Repeats an attempt that found a lock held, for [`PATIENCE`]; the last result counts.
pub(super) fn patiently<T>(attempt: impl Fn() -> T, is_held: impl Fn(&T) -> bool) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let result = attempt();
        if !is_held(&result) || Instant::now() >= deadline {
            return result;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
