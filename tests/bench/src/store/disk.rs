//! The disk without us: a plain write of the same bytes, and what a folder takes.
use super::BenchError;
use robust_ckpt::disk::{Disk, Open, RealDisk};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// As our own writes.
const BLOCK_BYTES: usize = 4 << 20;

/// A folder of this run's own, removed at its end.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub fn make(parent: &Path) -> io::Result<Self> {
        let path = parent.join(format!("robust-bench-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It is named after this process: somebody may look and remove it.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Seconds of a plain write past the page cache and a sync, where the file system can; no digest, no
/// names. `bytes` are aligned, whole blocks.
pub(super) fn plain_write(path: &Path, bytes: &[u8]) -> Result<f64, BenchError> {
    let started = Instant::now();
    let file = RealDisk
        .open(path, Open::DIRECT)
        .or_else(|_| RealDisk.open(path, Open::REPLACE))?;
    for (block, n) in bytes.chunks(BLOCK_BYTES).zip(0..) {
        file.write_all_at(block, n * BLOCK_BYTES as u64)?;
    }
    file.sync()?;
    Ok(started.elapsed().as_secs_f64())
}

/// Bytes of disk that a folder's files take; one with several names counts once.
pub(super) fn used(dir: &Path) -> io::Result<u64> {
    let (mut bytes, mut seen) = (0, std::collections::BTreeSet::new());
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let found = path.symlink_metadata()?;
        if found.is_dir() {
            bytes += used(&path)?;
        } else if seen.insert(found.ino()) {
            bytes += found.blocks() * 512;
        }
    }
    Ok(bytes)
}
