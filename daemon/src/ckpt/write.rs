//! From a snapshot to a durable file.
//!
//! ```text
//!  own thread   slot ─► block ─► digest ─┐ up to two blocks ahead
//!  the caller                            └─► direct write ─► seal unchanged? ─► fsync, rename
//! ```
//! The digest costs no time that the disk does not take anyway, and memory is a few blocks, whatever
//! the shard's size.
use robust_ckpt::CkptError;
use robust_ckpt::disk::{ALIGN, Disk, DiskFile, Open};
use robust_ckpt::slot::Image;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use xxhash_rust::xxh3::Xxh3;

/// Bytes per direct write: below 1 MiB they are slower, above 16 MiB they gain nothing.
const BLOCK_BYTES: usize = 4 << 20;
/// One is written, one is hashed, and one waits.
const BLOCKS: usize = 3;

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// The page cache was bypassed.
    pub direct: bool,
    /// XXH3-64 of the image.
    pub xxh3: u64,
}

/// Copies an image to `to`, hashing on the way; the file appears whole and durable or not at all: an
/// image that changed meanwhile, or that is not the one whose digest is known, gives none.
pub fn copy_shard(
    disk: &dyn Disk,
    image: &Image,
    xxh3: Option<u64>,
    to: &Path,
) -> Result<Copied, CkptError> {
    let temporary = to.with_extension("tmp");
    copy_checked(disk, image, xxh3, &temporary)
        .and_then(|copied| {
            let renamed = disk.rename(&temporary, to);
            renamed.map_err(CkptError::io("rename", &temporary))?;
            Ok(copied)
        })
        .inspect_err(|_| {
            // Frees the space when the disk is full; the error at hand is the one to tell.
            let _ = disk.remove_file(&temporary);
        })
}

fn copy_checked(
    disk: &dyn Disk,
    image: &Image,
    expected: Option<u64>,
    temporary: &Path,
) -> Result<Copied, CkptError> {
    // A file system that refuses direct writes does so when opening or at the first write.
    if let Ok(output) = disk.open(temporary, Open::DIRECT) {
        match copy(image, expected, &*output, temporary, true) {
            Err(CkptError::Io { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => {}
            result => return result,
        }
    }
    let output = disk
        .open(temporary, Open::REPLACE)
        .map_err(CkptError::io("make", temporary))?;
    copy(image, expected, &*output, temporary, false)
}

fn copy(
    image: &Image,
    expected: Option<u64>,
    output: &dyn DiskFile,
    path: &Path,
    direct: bool,
) -> Result<Copied, CkptError> {
    let (full, filled) = sync_channel(BLOCKS);
    let (empty, blank) = channel();
    for _ in 0..BLOCKS {
        // The other end is below.
        let _ = empty.send(Block::new());
    }
    let xxh3 = std::thread::scope(|scope| {
        let reading = scope.spawn(move || read(image, &blank, &full));
        write(output, path, direct, filled, empty)?;
        reading
            .join()
            .unwrap_or_else(|_| Err(CkptError::bad(image.path(), "its reader failed")))
    })?;
    image.check_unchanged()?;
    if expected.is_some_and(|expected| expected != xxh3) {
        let expected = expected.unwrap_or_default();
        return Err(CkptError::Torn {
            path: image.path().to_owned(),
            detail: format!("digest {xxh3:016x} instead of {expected:016x}"),
        });
    }
    output
        .set_len(image.bytes())
        .and_then(|()| output.sync())
        .map_err(CkptError::io("sync", path))?;
    Ok(Copied { direct, xxh3 })
}

/// Reads and hashes the image, block by block; its digest. It ends early when the writer does.
fn read(
    image: &Image,
    blank: &Receiver<Block>,
    full: &SyncSender<Block>,
) -> Result<u64, CkptError> {
    let (mut hash, mut at) = (Xxh3::new(), 0);
    while at < image.bytes() {
        let Ok(mut block) = blank.recv() else { break };
        block.at = at;
        block.filled = image.read_at(block.bytes_mut(), at)?;
        hash.update(&block.bytes()[..block.filled]);
        at += block.filled as u64;
        if full.send(block).is_err() {
            break;
        }
    }
    Ok(hash.digest())
}

fn write(
    output: &dyn DiskFile,
    path: &Path,
    direct: bool,
    filled: Receiver<Block>,
    // By value: a reader that waits for a block must not outwait a write that failed.
    empty: Sender<Block>,
) -> Result<(), CkptError> {
    for mut block in filled {
        let mut length = block.filled;
        if direct {
            // A multiple of the alignment; what is too much at the end is cut at the end.
            length = length.next_multiple_of(ALIGN);
            let filled = block.filled;
            block.bytes_mut()[filled..length].fill(0);
        }
        output
            .write_all_at(&block.bytes()[..length], block.at)
            .map_err(CkptError::io("write", path))?;
        // The reader is done when nobody takes it.
        let _ = empty.send(block);
    }
    Ok(())
}

/// Memory aligned for direct writes.
struct Block {
    memory: Vec<u8>,
    first: usize,
    /// Where in the image its bytes belong.
    at: u64,
    filled: usize,
}

impl Block {
    fn new() -> Self {
        let memory = vec![0; BLOCK_BYTES + ALIGN];
        let first = memory.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self {
            memory,
            first,
            at: 0,
            filled: 0,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.first..self.first + BLOCK_BYTES]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.first..self.first + BLOCK_BYTES]
    }
}
