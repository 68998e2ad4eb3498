//! The writer's side of a slot.
use super::map::Map;
use super::{GENERATION, MAGIC, PAGE, SEQUENCE, Seal, SnapshotMemory, Taken, VERSION};
use crate::CkptError;
use robust_shared::ids::{Generation, Step};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

/// A slot that one rank writes.
#[derive(Debug)]
pub struct Slot {
    path: PathBuf,
    map: Map,
    /// The newest generation that this life knows of: found when the slot was opened, then its own.
    known: u64,
}

/// An image that is being written.
#[derive(Debug)]
#[must_use = "an image that is not finished is no snapshot"]
pub struct Writing {
    sequence: u64,
    taken: Taken,
}

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
        let map = Map::to_write(&file, needed).map_err(CkptError::io("map", path))?;
        let known = match Seal::read(map.words()) {
            super::Words::Plain => 0,
            _ => map.word(GENERATION).load(Ordering::Relaxed),
        };
        let path = path.to_owned();
        Ok(Self { path, map, known })
    }

    /// Bytes of the largest image that it takes.
    pub fn capacity(&self) -> u64 {
        (self.map.bytes() - PAGE) as u64
    }

    /// Copies the parts, one after the other, and seals them as the image of a step; errors are those
    /// of [`Self::begin`].
    pub fn write(
        &mut self,
        of: (Step, Generation),
        adam_step: u64,
        parts: &[&dyn SnapshotMemory],
    ) -> Result<Taken, CkptError> {
        let bytes: usize = parts.iter().map(|part| part.bytes()).sum();
        let writing = self.begin(of, bytes as u64)?;
        let mut at = PAGE;
        for part in parts {
            let to = self.map.range(at, part.bytes());
            part.copy_to(0, to)
                .map_err(|why| CkptError::io("copy to", &self.path)(io::Error::other(why)))?;
            at += part.bytes();
        }
        Ok(self.finish(writing, adam_step))
    }

    /// Marks the slot as being written with an image of so many bytes: whoever has the file mapped may
    /// write them now, from its second page on. What the slot held is gone.
    ///
    /// A gang that another one has replaced in this slot since is refused: its step is history that
    /// did not happen (I-1).
    pub fn begin(
        &mut self,
        (step, generation): (Step, Generation),
        bytes: u64,
    ) -> Result<Writing, CkptError> {
        let bad = |reason: String| CkptError::bad(&self.path, reason);
        if bytes > self.capacity() {
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
        let taken = Taken {
            step,
            generation,
            bytes,
        };
        Ok(Writing { sequence, taken })
    }

    /// Copies the first bytes of the image that is being written.
    pub fn put_first(&mut self, bytes: &[u8]) {
        self.map.range(PAGE, bytes.len()).copy_from_slice(bytes);
    }

    /// Copies bytes of the image that is being written, from `at` on, out of the beginning of a file. It is read and
    /// not mapped: whoever owns it may cut it short meanwhile, which is an error here.
    pub fn put_from(&mut self, at: u64, from: &File, bytes: u64) -> Result<(), CkptError> {
        let whole = |number: u64| usize::try_from(number).map_err(io::Error::other);
        let copied = whole(at).and_then(|at| {
            let to = self.map.range(PAGE + at, whole(bytes)?);
            from.read_exact_at(to, 0)
        });
        copied.map_err(CkptError::io("copy to", &self.path))
    }

    /// Seals the image, whose last byte is written.
    pub fn finish(&mut self, writing: Writing, adam_step: u64) -> Taken {
        let Writing { sequence, taken } = writing;
        let seal = Seal {
            sequence,
            taken,
            adam_step,
        };
        self.seal(&seal);
        taken
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
