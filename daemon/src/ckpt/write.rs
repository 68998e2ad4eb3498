//! From a slot to a durable file.
use super::staging::{SnapshotMemory, StagingBlock};
use robust_ckpt::disk::{ALIGN, Disk, DiskFile, Open};
use robust_ckpt::{CkptError, Shard, files::fill};
use std::fs::File;
use std::io;
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// Copies a slot to `to`, hashing on the way; the file appears whole and durable or not at all.
/// Says whether the page cache was bypassed.
pub fn copy_shard(
    disk: &dyn Disk,
    shard: &Shard,
    to: &Path,
    memory: &dyn SnapshotMemory,
) -> Result<bool, CkptError> {
    let temporary = to.with_extension("tmp");
    copy_checked(disk, shard, &temporary, memory)
        .and_then(|direct| {
            let renamed = disk.rename(&temporary, to);
            renamed.map_err(CkptError::io("rename", &temporary))?;
            Ok(direct)
        })
        .inspect_err(|_| {
            // Frees the space when the disk is full; the error at hand is the one to tell.
            let _ = disk.remove_file(&temporary);
        })
}

fn copy_checked(
    disk: &dyn Disk,
    shard: &Shard,
    temporary: &Path,
    memory: &dyn SnapshotMemory,
) -> Result<bool, CkptError> {
    let reading = CkptError::io("read", &shard.path);
    let mut slot = File::open(&shard.path).map_err(reading)?;
    let mut block = memory
        .block()
        .map_err(|e| CkptError::io("stage", &shard.path)(io::Error::other(e)))?;
    // A file system that refuses direct writes does so when opening or at the first write.
    if let Ok(output) = disk.open(temporary, Open::DIRECT) {
        match copy(shard, &mut slot, &*output, temporary, &mut *block, true) {
            Err(CkptError::Io { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => {
                slot = File::open(&shard.path).map_err(CkptError::io("read", &shard.path))?;
            }
            result => return result.map(|()| true),
        }
    }
    let output = disk
        .open(temporary, Open::REPLACE)
        .map_err(CkptError::io("make", temporary))?;
    copy(shard, &mut slot, &*output, temporary, &mut *block, false).map(|()| false)
}

fn copy(
    shard: &Shard,
    slot: &mut File,
    output: &dyn DiskFile,
    path: &Path,
    block: &mut dyn StagingBlock,
    direct: bool,
) -> Result<(), CkptError> {
    let torn = |detail: String| CkptError::Torn {
        path: shard.path.clone(),
        detail,
    };
    let bytes = block
        .bytes()
        .map_err(|e| CkptError::io("stage", &shard.path)(io::Error::other(e)))?;
    let (mut hash, mut total) = (Xxh3::new(), 0);
    loop {
        let filled = fill(slot, bytes).map_err(CkptError::io("read", &shard.path))?;
        total += filled as u64;
        hash.update(&bytes[..filled]);
        // A direct write is a multiple of the alignment; what is too much at the end is cut below.
        let length = if direct {
            filled.next_multiple_of(ALIGN)
        } else {
            filled
        };
        bytes[filled..length].fill(0);
        output
            .write_all_at(&bytes[..length], total - filled as u64)
            .map_err(CkptError::io("write", path))?;
        if filled < bytes.len() {
            break;
        }
    }
    if total != shard.bytes {
        return Err(torn(format!("{total} bytes instead of {}", shard.bytes)));
    }
    let digest = hash.digest();
    if digest != shard.xxh3 {
        return Err(torn(format!(
            "digest {digest:016x} instead of {:016x}",
            shard.xxh3
        )));
    }
    output
        .set_len(total)
        .and_then(|()| output.sync())
        .map_err(CkptError::io("sync", path))
}
