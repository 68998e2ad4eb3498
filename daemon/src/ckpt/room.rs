//! Room for the next checkpoint. On a disk that is too full for it none is begun, so that the rest of the
//! disk stays for the database, without which the job could not go on.
//!
//! ```text
//!            too little room, or a write that found none
//!   writing ─────────────────────────────────────────────► paused
//!      ▲                                                      │ the disk is looked at every second
//!      └──────────── room for a checkpoint of that size ◄─────┘
//! ```
use super::{CkptEvent, Config, Request};
use crate::store;
use robust_ckpt::CkptError;
use robust_shared::ids::Step;
use std::cell::Cell;
use std::time::Duration;

/// How often a full disk is looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Beside the shards: manifest, folder, the file system's own.
const EXTRA: u64 = 1 << 20;

/// Whether checkpoints are paused.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// What the checkpoint needed that found no room.
    wanted: Cell<Option<u64>>,
}

impl Room {
    pub fn is_paused(&self) -> bool {
        self.wanted.get().is_some()
    }

    /// Looks before a checkpoint is begun; says so when there is no room for it.
    pub fn look(&self, config: &Config, request: &Request) -> Option<CkptEvent> {
        let bytes: u64 = request.shards.iter().map(|s| s.bytes).sum();
        // A file system that does not say: the write itself will.
        let space = config.disk.space(&config.dir).ok()?;
        let wanted = bytes + EXTRA + store::reserve(space.total);
        (space.free < wanted).then(|| self.pause(request.step, space.free, wanted))
    }

    /// A checkpoint that was begun found no room after all, and was removed again.
    pub fn failed(
        &self,
        config: &Config,
        request: &Request,
        error: &CkptError,
    ) -> Option<CkptEvent> {
        let CkptError::Full { .. } = error else {
            return None;
        };
        let bytes: u64 = request.shards.iter().map(|s| s.bytes).sum();
        let space = config.disk.space(&config.dir).ok()?;
        // What seemed enough was not; some more must be free before it is tried again.
        let wanted = space.free.max(bytes + store::reserve(space.total)) + bytes / 8 + EXTRA;
        Some(self.pause(request.step, space.free, wanted))
    }

    fn pause(&self, step: Step, free: u64, wanted: u64) -> CkptEvent {
        self.wanted.set(Some(wanted));
        CkptEvent::Paused { step, free, wanted }
    }

    /// Looks again while paused; says so when there is room.
    pub fn look_again(&self, config: &Config) -> Option<CkptEvent> {
        let wanted = self.wanted.get()?;
        let free = config.disk.space(&config.dir).ok()?.free;
        (free >= wanted).then(|| {
            self.wanted.set(None);
            CkptEvent::Resumed { free }
        })
    }
}
