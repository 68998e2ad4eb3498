//! A disk that looks full for a while: the room that the database sees, taken away.
use super::condition::Condition;
use super::database::Commit;
use super::error::StoreError;
use robust_ckpt::disk::Space;
use robust_grouplog::Group;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shared by the database's writer and whoever takes its room away.
#[derive(Clone, Debug, Default)]
pub struct Quota(Arc<Mutex<Option<Instant>>>);

impl Quota {
    /// There is no room for so long, from now on.
    pub fn take_away(&self, lasts: Duration) {
        let until = Instant::now() + lasts;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// The same database, which sees the room that is left.
    pub fn around(&self, commit: Box<dyn Commit>) -> Box<dyn Commit> {
        let quota = self.clone();
        Box::new(Limited { quota, commit })
    }

    fn is_taken(&self) -> bool {
        let until = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }
}

struct Limited {
    quota: Quota,
    commit: Box<dyn Commit>,
}

impl Commit for Limited {
    fn commit(&mut self, tree: &sled::Tree, group: Group) -> Result<(), StoreError> {
        self.commit.commit(tree, group)
    }

    fn files(&mut self) -> Vec<(String, Option<Vec<u8>>)> {
        self.commit.files()
    }

    fn tells(&mut self, conditions: Box<dyn Fn(Condition) + Send + Sync>) {
        self.commit.tells(conditions);
    }

    fn space(&self) -> io::Result<Space> {
        let space = self.commit.space()?;
        Ok(match self.quota.is_taken() {
            true => Space { free: 0, ..space },
            false => space,
        })
    }
}
