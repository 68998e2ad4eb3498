//! The trajectories that an agent worker holds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// The trajectories of a worker; a watch that becomes true is a revocation. Clones share them.
#[derive(Clone, Default)]
pub struct Leases(Arc<Mutex<BTreeMap<u64, watch::Sender<bool>>>>);

/// What a conversation holds of its lease.
pub type Revoked = watch::Receiver<bool>;

impl Leases {
    /// None if it is held already. One that was revoked may be given here again before its first
    /// conversation noticed.
    pub fn take(&self, trajectory: u64) -> Option<Revoked> {
        let mut held = self.lock();
        if held
            .get(&trajectory)
            .is_some_and(|revoke| !*revoke.borrow())
        {
            return None;
        }
        let (revoke, revoked) = watch::channel(false);
        held.insert(trajectory, revoke);
        Some(revoked)
    }

    /// It is somebody else's from now on.
    pub fn revoke(&self, trajectory: u64) {
        if let Some(revoke) = self.lock().get(&trajectory) {
            revoke.send_replace(true);
        }
    }

    /// Ends this holding of it, unless it was followed by another.
    pub fn release(&self, trajectory: u64, holding: &Revoked) {
        let mut held = self.lock();
        if held
            .get(&trajectory)
            .is_some_and(|revoke| revoke.subscribe().same_channel(holding))
        {
            held.remove(&trajectory);
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Their keys.
    pub fn all(&self) -> Vec<u64> {
        self.lock().keys().copied().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, watch::Sender<bool>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
