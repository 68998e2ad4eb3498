//! Huge pages for memory that is shown to other processes.
//!
//! The kernel gives shared memory small ones as a rule (`shmem_enabled` is `never`), whatever it is advised.
//! `MADV_COLLAPSE` (Linux 6.1, `madvise(2)`) makes them huge all the same. That takes a second for a GiB or
//! two, so it is done beside whatever the memory is used for, which goes on as before. What it is for: a
//! process that is killed lets go of 2 GiB in 6 ms instead of 400, and only then do others hear of its
//! death; and pulls within a machine are a fifth to a third faster.
#![allow(unsafe_code)]

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// Bytes of a huge page.
pub(crate) const HUGE: usize = 2 << 20;

const MADV_COLLAPSE: libc::c_int = 25;

/// A thread that makes the pages of a mapping huge. Dropped: it has ended.
pub(crate) struct Collapsing {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Collapsing {
    /// Begins with a mapping of so many bytes, of which the whole huge pages are made so. None where there
    /// is none, or no thread: small pages do.
    ///
    /// # Safety
    /// The mapping stays until the returned value is dropped.
    pub unsafe fn begin(address: usize, len: usize) -> Option<Self> {
        let pages = NonZeroUsize::new(len / HUGE)?;
        if !address.is_multiple_of(HUGE) {
            return None;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let collapse = move || {
            for page in 0..pages.get() {
                let at = address + page * HUGE;
                // Not by the C library's function: UCX has hooks in that.
                // SAFETY: advice for a part of a mapping that stays until this thread has ended; it
                // changes no byte.
                let done = unsafe { libc::syscall(libc::SYS_madvise, at, HUGE, MADV_COLLAPSE) };
                // An older kernel, or no huge page to be had: the next one is no better.
                if done != 0 || stopped.load(Ordering::Relaxed) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("huge-pages".into());
        Some(Self {
            stop,
            thread: Some(thread.spawn(collapse).ok()?),
        })
    }
}

impl Drop for Collapsing {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
