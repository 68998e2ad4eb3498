//! How fast the state's disk takes a checkpoint: aligned direct writes, then one flush.
use super::super::facts::{Found, Written};
use super::folders::existing;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// Size of a write, as checkpoints have it.
const BLOCK: usize = 8 << 20;
/// Of memory and of lengths, for direct writes.
const ALIGNED: usize = 4096;
/// A slow disk need not be given all of it to be known.
const ENOUGH: Duration = Duration::from_secs(5);

/// Writes so much to a file that has no name and is gone afterwards.
pub(super) fn measure(dir: &Path, bytes: u64) -> Found<Written> {
    let dir = existing(dir);
    let said = |e: std::io::Error| format!("{}: {e}", dir.display());
    let file = tempfile::tempfile_in(&dir).map_err(said)?;
    let direct = set_direct(&file);
    let block = block();
    let aligned = &block[block.as_ptr().align_offset(ALIGNED)..][..BLOCK];
    let mut file = file;
    let mut written = 0;
    let began = Instant::now();
    while written < bytes && began.elapsed() < ENOUGH {
        let left = usize::try_from(bytes - written).unwrap_or(BLOCK).min(BLOCK);
        file.write_all(&aligned[..left]).map_err(said)?;
        written += left as u64;
    }
    file.sync_data().map_err(said)?;
    Ok(Written {
        bytes: written,
        seconds: began.elapsed().as_secs_f64(),
        direct,
    })
}

/// Whether writes go past the page cache from now on; some file systems cannot.
fn set_direct(file: &File) -> bool {
    let flags = rustix::fs::fcntl_getfl(file);
    flags.is_ok_and(|flags| rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).is_ok())
}

/// Bytes that no file system makes smaller: a counter through a mixing function.
fn block() -> Vec<u8> {
    let words = (0..(BLOCK + ALIGNED) as u64 / 8).map(|n| {
        let mixed = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ (mixed >> 31)
    });
    words.flat_map(u64::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_was_asked_for_is_written_and_nothing_stays() {
        let dir = tempfile::tempdir().unwrap();
        let found = measure(&dir.path().join("not/yet"), 20 << 20).unwrap();
        assert!(found.bytes > 0 && found.bytes <= 20 << 20);
        assert!(found.seconds > 0.0 && found.mb_per_s() > 0.0);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
