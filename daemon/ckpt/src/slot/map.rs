//! Shared memory, mapped.
use super::{PAGE, WORDS};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes touched at a time, ahead of a copy.
const AHEAD_BYTES: usize = 8 << 20;

/// A slot's memory, for as long as this lives.
#[derive(Debug)]
pub(super) struct Map {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to no thread; it is unmapped once, by the owner.
#[allow(unsafe_code)]
unsafe impl Send for Map {}
// SAFETY: shared, only the seal's atomics are reached, and bytes are copied out.
#[allow(unsafe_code)]
unsafe impl Sync for Map {}

#[allow(unsafe_code)]
impl Map {
    /// The slot's writer's, touched without a change, so that no copy pays for page faults.
    pub fn to_write(file: &File, bytes: u64) -> io::Result<Self> {
        let map = Self::new(
            file,
            bytes,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::empty(),
        )?;
        // A kernel that does not know this makes the first copy pay.
        // SAFETY: the mapping above.
        let _ = unsafe {
            madvise(
                map.start.as_ptr().cast(),
                map.bytes,
                Advice::LinuxPopulateWrite,
            )
        };
        Ok(map)
    }

    /// A reader's. Its pages come while it is read ([`Self::touch_ahead`]).
    pub fn to_read(file: &File, bytes: u64) -> io::Result<Self> {
        Self::new(file, bytes, ProtFlags::READ, MapFlags::empty())
    }

    /// Brings in all pages, in order: several times as fast as they are copied, so that a copy on
    /// another core meets no fault.
    pub fn touch_ahead(&self) {
        for at in (0..self.bytes).step_by(AHEAD_BYTES) {
            let bytes = AHEAD_BYTES.min(self.bytes - at);
            // SAFETY: within the mapping; nothing is changed. Where it fails the copy faults.
            let _ = unsafe {
                let start = self.start.as_ptr().add(at);
                madvise(start.cast(), bytes, Advice::LinuxPopulateRead)
            };
        }
    }

    fn new(file: &File, bytes: u64, protection: ProtFlags, flags: MapFlags) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        let flags = MapFlags::SHARED | flags;
        // SAFETY: a new mapping, of a file that has as many bytes.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0)? };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at 0"))?;
        Ok(Self { start, bytes })
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// One word of the seal.
    pub fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < WORDS, "the seal has {WORDS} words, not {at}");
        // SAFETY: within the first page, aligned; all accesses of this process to the seal are atomic.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().cast::<u64>().add(at)) }
    }

    /// The seal's words as they are now.
    pub fn words(&self) -> [u64; WORDS] {
        std::array::from_fn(|at| self.word(at).load(Ordering::Acquire))
    }

    /// A part of the writer's image, after the seal.
    pub fn range(&mut self, at: usize, bytes: usize) -> &mut [u8] {
        let end = at.checked_add(bytes);
        let fits = at >= PAGE && end.is_some_and(|end| end <= self.bytes);
        // In release builds too: what follows would write beside the map.
        assert!(
            fits,
            "{bytes} bytes at {at} are no part of an image of {}",
            self.bytes
        );
        // SAFETY: within the mapping and beyond the seal; in this process nobody else has it, and other
        // processes only read.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(at), bytes) }
    }

    /// Copies from `at` on into all of `to`; false where the map has less. No reference to the map's
    /// memory is made: another process may still write there, and the seal tells afterwards.
    pub fn copy_to(&self, at: usize, to: &mut [u8]) -> bool {
        let fits = at
            .checked_add(to.len())
            .is_some_and(|end| end <= self.bytes);
        if fits {
            // SAFETY: within the mapping, and `to` is no part of it.
            unsafe {
                let from = self.start.as_ptr().add(at);
                std::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len());
            }
        }
        fits
    }
}

impl Drop for Map {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, of which no borrow is left. It fails only when that is not so.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
