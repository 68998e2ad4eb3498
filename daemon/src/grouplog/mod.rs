//! The job's log: what the store commits goes into an object store as well, so that another machine can go on.
//!
//! ```text
//!  committer ──► Logged::commit ──┬── the group, to the log ────► (registered with the arbiter, where there is one) ─┐
//!                                 └── the group, to sled, synced ────────────────────────────────────────────────────┴─► acknowledged
//!  of several controllers the store gets a group only once it counts: what it has follows the log, whoever died when
//!  a base: begins with a new log, and again when the groups since the last one are more than it
//! ```
//! Files of the state directory that another machine needs ([`carried`]) are written with the groups.
mod attached;
mod bases;
mod begin;
mod carried;
mod restore;
#[cfg(test)]
mod tests;
mod under_way;

pub use attached::{Attached, Fate, Register};
pub use begin::{BeginError, begin, moves, no_life, no_other_life, put_base};
pub use carried::Carried;
pub use restore::{RestoreError, Restored, newest, restore, restored, write_files};
pub use under_way::UnderWay;

use crate::store::database::Commit;
use crate::store::{Condition, StoreError};
use robust_ckpt::disk::Space;
use robust_grouplog::Group;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The way from a store to its log; without one attached, a store keeps everything to itself. Cheap to clone.
#[derive(Clone, Default)]
pub struct Logging(Arc<Shared>);

#[derive(Default)]
struct Shared {
    attached: Mutex<Option<Attached>>,
    hurried: Arc<AtomicBool>,
    under_way: UnderWay,
}

impl Logging {
    /// Whether a group is being committed, and since when.
    pub fn under_way(&self) -> &UnderWay {
        &self.0.under_way
    }

    /// The same database, whose groups are put into the log that is attached.
    pub fn around(&self, commit: Box<dyn Commit>) -> Box<dyn Commit> {
        Box::new(Logged {
            logging: self.clone(),
            commit,
            tell: Box::new(|_| ()),
        })
    }

    /// From now on everything goes into this log.
    pub fn attach(&self, attached: Attached) {
        *self.attached() = Some(attached.hurried_by(Arc::clone(&self.0.hurried)));
    }

    /// Somebody wants the end: a log that cannot be written is not waited for without end any more.
    pub fn hurry(&self) {
        self.0.hurried.store(true, Ordering::Release);
    }

    fn attached(&self) -> MutexGuard<'_, Option<Attached>> {
        // A panic in the middle of a group is an error of that group, and the log begins anew after it.
        self.0
            .attached
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

struct Logged {
    logging: Logging,
    commit: Box<dyn Commit>,
    tell: Box<dyn Fn(Condition) + Send + Sync>,
}

impl Commit for Logged {
    fn commit(&mut self, tree: &sled::Tree, group: Group) -> Result<(), StoreError> {
        let _lasts = self.logging.0.under_way.begin();
        match self.logging.attached().as_mut() {
            Some(log) => log.commit(tree, group, &mut *self.commit, &*self.tell),
            None => self.commit.commit(tree, group),
        }
    }

    fn files(&mut self) -> Vec<(String, Option<Vec<u8>>)> {
        let _lasts = self.logging.0.under_way.begin();
        match self.logging.attached().as_mut() {
            Some(log) => log.files(),
            None => Vec::new(),
        }
    }

    fn tells(&mut self, conditions: Box<dyn Fn(Condition) + Send + Sync>) {
        self.tell = conditions;
    }

    fn space(&self) -> io::Result<Space> {
        let _lasts = self.logging.0.under_way.begin();
        self.commit.space()
    }
}
