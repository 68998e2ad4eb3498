//! Reads all of the database once after each opening, in the background and at its leisure: bytes
//! that went bad are found before somebody needs them.
use super::committer::Slot;
use super::condition::{Condition, Conditions};
use super::database;
use super::error::StoreError;
use super::reader::Reader;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Entries between two pauses.
const PAGE: u64 = 256;
/// A pause is this many times what the page took: a tenth of a core at most.
const PAUSE: u32 = 9;
/// And no longer than this, or a slow disk would draw it out for days.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// The thread that reads; it ends when it has read everything, or when this is dropped.
pub(super) struct Scrub {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Scrub {
    pub fn start(
        path: PathBuf,
        slot: Arc<RwLock<Slot>>,
        conditions: Conditions,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || {
            let mut after = None;
            while !stopped.load(Ordering::Acquire) {
                let began = Instant::now();
                match page(&path, &slot, after.as_deref()) {
                    Ok(None) => return,
                    Ok(last) => after = last,
                    Err(error @ StoreError::Corrupt { .. }) => {
                        return found(&error, &path, &conditions);
                    }
                    // Closed after a failed write; it is opened again.
                    Err(_) => {}
                }
                let pause = began.elapsed() * PAUSE;
                thread::park_timeout(pause.clamp(Duration::from_millis(1), PAUSE_MAX));
            }
        };
        let thread = thread::Builder::new()
            .name("store-scrub".to_owned())
            .spawn(run)?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Scrub {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Reads a page; its last key, none at the end.
fn page(
    path: &Path,
    slot: &RwLock<Slot>,
    after: Option<&[u8]>,
) -> Result<Option<Vec<u8>>, StoreError> {
    let slot = slot.read().unwrap_or_else(PoisonError::into_inner);
    let db = slot.as_ref().map_err(Clone::clone)?;
    let mut read =
        Reader::new(db, path).consistently(|reader| reader.entries_after(after, PAGE))?;
    Ok(read.pop().map(|(key, _)| key))
}

/// Damage was met: it is shown, and the next opening will look at everything.
pub(super) fn found(error: &StoreError, path: &Path, conditions: &Conditions) {
    if let StoreError::Corrupt { detail, .. } = error {
        database::suspect(path, detail);
        conditions.set(Condition::Damaged {
            detail: detail.clone(),
        });
    }
}
