//! The writer's side of a slot.
use super::{GENERATION, MAGIC, PAGE, SEQUENCE, Seal, SnapshotMemory, Taken, VERSION, WORDS};
use crate::CkptError;
use robust_shared::ids::{Generation, Step};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A slot that one rank writes.
#[derive(Debug)]
pub struct Slot {
    path: PathBuf,
    map: Map,
    /// The newest generation that this life knows of: found when the slot was opened, then its own.
    known: u64,
}

/// Shared memory, mapped for as long as the slot is open.
#[derive(Debug)]
struct Map {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread; it is unmapped once, by the owner.
#[allow(unsafe_code)]
unsafe impl Send for Map {}

impl Slot {
    /// Opens or makes the slot at `path` for images of so many bytes, allocated and touched, so that
    /// writing costs a copy and no page fault. What it holds stays: it may be what the gang is about to
    /// restore.
    pub fn open(path: &Path, bytes: u64) -> Result<Self, CkptError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(CkptError::io("open", path))?;
        let needed = PAGE as u64 + bytes.next_multiple_of(PAGE as u64);
        // Never smaller: a gang of more ranks may yet have to restore what a smaller one wrote.
        let there = file.metadata().map_err(CkptError::io("look at", path))?;
        if there.len() < needed {
            file.set_len(needed).map_err(CkptError::io("size", path))?;
        }
        // All pages now: a full /dev/shm is an error here, and a SIGBUS later.
        fallocate(&file, FallocateFlags::empty(), 0, needed)
            .map_err(|e| CkptError::io("allocate", path)(e.into()))?;
        let map = Map::new(&file, needed).map_err(CkptError::io("map", path))?;
        let known = match Seal::read(map.words()) {
            super::Words::Plain => 0,
            _ => map.word(GENERATION).load(Ordering::Relaxed),
        };
        let path = path.to_owned();
        Ok(Self { path, map, known })
    }

    /// Bytes of the largest image that it takes.
    pub fn capacity(&self) -> u64 {
        (self.map.bytes - PAGE) as u64
    }

    /// Copies the parts, one after the other, and seals them as the image of a step.
    ///
    /// A gang that another one has replaced in this slot since is refused: its step is history that
    /// did not happen (I-1).
    pub fn write(
        &mut self,
        (step, generation): (Step, Generation),
        adam_step: u64,
        parts: &[&dyn SnapshotMemory],
    ) -> Result<Taken, CkptError> {
        let bytes: usize = parts.iter().map(|part| part.bytes()).sum();
        let bad = |reason: String| CkptError::bad(&self.path, reason);
        if bytes as u64 > self.capacity() {
            let reason = format!(
                "an image of {bytes} bytes does not fit in {}",
                self.capacity()
            );
            return Err(bad(reason));
        }
        let sealed = !matches!(Seal::read(self.map.words()), super::Words::Plain);
        let newest = self.map.word(GENERATION).load(Ordering::Acquire);
        if sealed && newest > self.known.max(generation.0) {
            let reason = format!("generation {newest} writes here now, {generation} is over");
            return Err(bad(reason));
        }
        self.known = self.known.max(generation.0);
        let sequence = self.unseal(generation, sealed);
        let mut at = PAGE;
        for part in parts {
            let to = self.map.range(at, part.bytes());
            part.copy_to(0, to)
                .map_err(|why| CkptError::io("copy to", &self.path)(io::Error::other(why)))?;
            at += part.bytes();
        }
        let taken = Taken {
            step,
            generation,
            bytes: bytes as u64,
        };
        let seal = Seal {
            sequence,
            taken,
            adam_step,
        };
        self.seal(&seal);
        Ok(taken)
    }

    /// Marks the slot as being written, before its first byte changes; the sequence that will seal it.
    fn unseal(&self, generation: Generation, sealed: bool) -> u64 {
        let sequence = self.map.word(SEQUENCE);
        let before = if sealed {
            sequence.load(Ordering::Relaxed)
        } else {
            0
        };
        let odd = before | 1;
        sequence.store(odd, Ordering::SeqCst);
        self.map.word(0).store(MAGIC, Ordering::SeqCst);
        self.map.word(1).store(VERSION, Ordering::SeqCst);
        self.map
            .word(GENERATION)
            .store(generation.0, Ordering::SeqCst);
        // No byte of the image may be seen before the mark.
        fence(Ordering::SeqCst);
        odd.wrapping_add(1)
    }

    fn seal(&self, seal: &Seal) {
        // Nor the seal before the image.
        fence(Ordering::SeqCst);
        let words = seal.words();
        for (at, word) in words.iter().enumerate().filter(|(at, _)| *at != SEQUENCE) {
            self.map.word(at).store(*word, Ordering::Relaxed);
        }
        self.map
            .word(SEQUENCE)
            .store(words[SEQUENCE], Ordering::Release);
    }
}

#[allow(unsafe_code)]
impl Map {
    fn new(file: &File, bytes: u64) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, of a file that has as many bytes.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        // Touched without a change. A kernel that does not know this makes the first copy pay.
        // SAFETY: the mapping above.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxPopulateWrite) };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { start, bytes })
    }

    /// One word of the seal.
    fn word(&self, at: usize) -> &AtomicU64 {
        debug_assert!(at < WORDS);
        // SAFETY: within the first page, aligned; all accesses of this process to the seal are atomic.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().cast::<u64>().add(at)) }
    }

    fn words(&self) -> [u64; WORDS] {
        std::array::from_fn(|at| self.word(at).load(Ordering::Acquire))
    }

    /// A part of the image, after the seal.
    fn range(&mut self, at: usize, bytes: usize) -> &mut [u8] {
        debug_assert!(at >= PAGE && at + bytes <= self.bytes);
        // SAFETY: within the mapping and beyond the seal; in this process nobody else has it, and other
        // processes only read it through the kernel.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(at), bytes) }
    }
}

impl Drop for Map {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, of which no borrow is left. It fails only when that is not so.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
