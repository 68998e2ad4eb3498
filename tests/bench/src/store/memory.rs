//! Memory to copy from and to, and how much of it this process has.
use robust_ckpt::disk::ALIGN;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often the resident memory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Touched memory, aligned for direct writes.
pub(super) struct Memory {
    bytes: Vec<u8>,
    first: usize,
    length: usize,
}

impl Memory {
    /// Filled with bytes that no file system or memory could fold.
    pub fn new(length: usize) -> Self {
        let mut bytes = vec![0_u8; length + ALIGN];
        for (word, n) in bytes.chunks_exact_mut(8).zip(1_u64..) {
            word.copy_from_slice(&n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        }
        let first = bytes.as_ptr().align_offset(ALIGN).min(ALIGN);
        Self {
            bytes,
            first,
            length,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.first..self.first + self.length]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.first..self.first + self.length]
    }

    /// What a step of training does to it.
    pub fn change(&mut self, step: u64) {
        for page in self.bytes_mut().chunks_mut(ALIGN) {
            page[..8].copy_from_slice(&step.to_le_bytes());
        }
    }
}

/// Does the work; how many bytes of memory this process had meanwhile, at most, above what it had before.
pub(super) fn peak_above<T>(work: impl FnOnce() -> T) -> io::Result<(T, u64)> {
    let before = resident()?;
    let (done, mut peak) = (AtomicBool::new(false), before);
    let result = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut peak = before;
            while !done.load(Ordering::Relaxed) {
                peak = peak.max(resident().unwrap_or(before));
                std::thread::sleep(LOOK_EVERY);
            }
            peak
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        peak = looking.join().unwrap_or(before);
        result
    });
    Ok((result, peak.max(resident()?) - before))
}

fn resident() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_whitespace().nth(1).and_then(|n| n.parse().ok());
    let pages: u64 = pages.ok_or_else(|| io::Error::other("no resident pages"))?;
    Ok(pages * rustix::param::page_size() as u64)
}
