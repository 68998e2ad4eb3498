//! The rollouts that turns wait for. A machine that stands still or is cut off closes no connection,
//! so whoever waits for its tokens has to be told that none will come.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Who is waited for, and who is gone. Clones share it.
#[derive(Clone)]
pub struct Rollouts {
    /// How many turns wait for each.
    awaited: Arc<Mutex<BTreeMap<u64, usize>>>,
    /// Their numbers are never used again, so none is ever taken out.
    gone: Arc<watch::Sender<BTreeSet<u64>>>,
}

/// A turn waits for a rollout while this lives.
pub(super) struct Waiting {
    rollouts: Rollouts,
    incarnation: u64,
}

impl Default for Rollouts {
    /// Nobody waits for any.
    fn default() -> Self {
        Self {
            awaited: Arc::default(),
            gone: Arc::new(watch::channel(BTreeSet::new()).0),
        }
    }
}

impl Rollouts {
    /// A turn begins to wait for its tokens.
    pub(super) fn wait_for(&self, incarnation: u64) -> Waiting {
        *self.lock().entry(incarnation).or_default() += 1;
        Waiting {
            rollouts: self.clone(),
            incarnation,
        }
    }

    /// Nothing will come from it any more.
    pub fn is_gone(&self, incarnation: u64) {
        self.gone.send_if_modified(|all| all.insert(incarnation));
    }

    /// Whose tokens are waited for.
    pub fn awaited(&self) -> Vec<u64> {
        self.lock().keys().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.awaited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Returns when the rollout is gone, which may have been before.
    pub async fn gone(&self) {
        let mut gone = self.rollouts.gone.subscribe();
        // The sender lives as long as this does.
        let _ = gone.wait_for(|all| all.contains(&self.incarnation)).await;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut awaited = self.rollouts.lock();
        let left = awaited.get_mut(&self.incarnation).map(|turns| {
            *turns -= 1;
            *turns
        });
        if left == Some(0) {
            awaited.remove(&self.incarnation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn every_turn_of_a_rollout_that_is_gone_is_told_and_no_other() {
        let rollouts = Rollouts::default();
        let (early, other) = (rollouts.wait_for(7), rollouts.wait_for(8));
        let told = tokio::spawn(async move { early.gone().await });
        assert_eq!(rollouts.awaited(), [7, 8]);
        rollouts.is_gone(7);
        assert!(told.await.is_ok());
        assert_eq!(rollouts.awaited(), [8]);
        // Its route may have been on its way when the news came.
        rollouts.wait_for(7).gone().await;
        let never = tokio::time::timeout(Duration::from_millis(20), other.gone());
        assert!(never.await.is_err());
    }
}
