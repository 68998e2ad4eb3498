//! Which agent holds which trajectory now, checked at every write.
use robust_shared::ids::{Incarnation, TrajectoryId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

/// Why a write is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseError {
    /// Another agent holds it.
    #[error("{caller} does not hold {trajectory}: {holder} does")]
    HeldByAnother {
        /// Who asked.
        caller: Incarnation,
        /// For what.
        trajectory: TrajectoryId,
        /// Who holds it.
        holder: Incarnation,
    },
    /// Nobody holds it: it was revoked, finished or never handed out.
    #[error("{caller} does not hold {trajectory}: nobody does")]
    Void {
        /// Who asked.
        caller: Incarnation,
        /// For what.
        trajectory: TrajectoryId,
    },
}

/// The leases, each with a gate of its own. Whoever writes a trajectory keeps its gate from the check
/// until the write is durable, so a trajectory that moves is read only after the last write of the
/// one who held it before (I-2). Taking a lease away never waits, only giving it to the next does,
/// and only for writes of this very trajectory: the driver must not wait for the disk.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    table: Arc<Mutex<HashMap<TrajectoryId, Lease>>>,
}

#[derive(Debug, Default)]
struct Lease {
    holder: Option<Incarnation>,
    gate: Arc<RwLock<()>>,
}

impl Lease {
    fn void(&mut self, holder: Incarnation) {
        if self.holder == Some(holder) {
            self.holder = None;
        }
    }

    /// Whether nothing is lost with it: nobody holds it or writes under it.
    fn is_idle(&self) -> bool {
        self.holder.is_none() && Arc::strong_count(&self.gate) == 1
    }
}

/// Proof that a lease holds; while it lives the trajectory is handed to nobody else.
#[derive(Debug)]
pub struct Held {
    _gate: OwnedRwLockReadGuard<()>,
}

impl Leases {
    /// Checks a lease and keeps the trajectory from moving while the answer lives.
    pub async fn check(
        &self,
        caller: Incarnation,
        trajectory: TrajectoryId,
    ) -> Result<Held, LeaseError> {
        let void = LeaseError::Void { caller, trajectory };
        let gate = self.lock().get(&trajectory).map(|l| Arc::clone(&l.gate));
        let held = Held {
            _gate: gate.ok_or(void.clone())?.read_owned().await,
        };
        // Looked at behind the gate: it may have moved while this waited.
        match self.lock().get(&trajectory).and_then(|l| l.holder) {
            Some(holder) if holder == caller => Ok(held),
            Some(holder) => Err(LeaseError::HeldByAnother {
                caller,
                trajectory,
                holder,
            }),
            None => Err(void),
        }
    }

    /// Gives a trajectory to an agent; whoever held it before does no more, and what they were
    /// writing is durable when this returns.
    pub async fn grant(&self, holder: Incarnation, trajectory: TrajectoryId) {
        let gate = {
            let mut table = self.lock();
            let lease = table.entry(trajectory).or_default();
            lease.holder = Some(holder);
            Arc::clone(&lease.gate)
        };
        drop(gate.write_owned().await);
    }

    /// Takes a trajectory from an agent, unless another has it already.
    pub fn revoke(&self, holder: Incarnation, trajectory: TrajectoryId) {
        let mut table = self.lock();
        if let Some(lease) = table.get_mut(&trajectory) {
            lease.void(holder);
            if lease.is_idle() {
                table.remove(&trajectory);
            }
        }
    }

    /// Takes trajectories from whoever holds them; what they were writing is durable when this
    /// returns. For what is thrown away: a late turn must not survive it.
    pub async fn end(&self, trajectories: &[TrajectoryId]) {
        for trajectory in trajectories {
            let lease = self.lock().remove(trajectory);
            if let Some(lease) = lease {
                drop(lease.gate.write_owned().await);
            }
        }
    }

    /// Takes everything from an agent that is no more.
    pub fn revoke_all(&self, holder: Incarnation) {
        self.lock().retain(|_, lease| {
            lease.void(holder);
            !lease.is_idle()
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TrajectoryId, Lease>> {
        // No code can panic while it holds the lock, so a poisoned table is as good as any.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use futures::FutureExt;

    const A: Incarnation = Incarnation(1);
    const B: Incarnation = Incarnation(2);
    const T: TrajectoryId = TrajectoryId {
        batch: 1,
        group: 0,
        member: 0,
    };

    #[tokio::test]
    async fn only_the_holder_may_write() {
        let leases = Leases::default();
        assert_eq!(
            leases.check(A, T).await.unwrap_err(),
            LeaseError::Void {
                caller: A,
                trajectory: T
            }
        );
        leases.grant(A, T).await;
        leases.check(A, T).await.unwrap();
        leases.grant(B, T).await;
        assert_eq!(
            leases.check(A, T).await.unwrap_err().to_string(),
            "#1 does not hold 1.0.0: #2 does"
        );
    }

    #[tokio::test]
    async fn a_late_revocation_does_not_take_it_from_the_next_holder() {
        let leases = Leases::default();
        leases.grant(A, T).await;
        leases.grant(B, T).await;
        leases.revoke(A, T);
        leases.revoke_all(A);
        leases.check(B, T).await.unwrap();
    }

    #[tokio::test]
    async fn a_trajectory_is_handed_on_only_after_the_last_write_of_the_one_before() {
        let leases = Leases::default();
        leases.grant(A, T).await;
        let writing = leases.check(A, T).await.unwrap();
        // Its end is seen at once, and from here on it begins no further write.
        leases.revoke_all(A);
        assert!(leases.check(A, T).await.is_err());
        let mut moved = std::pin::pin!(leases.grant(B, T));
        assert!(futures::poll!(&mut moved).is_pending());
        drop(writing);
        moved.await;
        leases.check(B, T).await.unwrap();
    }

    #[tokio::test]
    async fn a_write_of_one_trajectory_keeps_no_other_waiting() {
        let leases = Leases::default();
        let other = TrajectoryId { member: 1, ..T };
        leases.grant(A, T).await;
        let _writing = leases.check(A, T).await.unwrap();
        assert!(leases.grant(B, other).now_or_never().is_some());
    }

    #[tokio::test]
    async fn leases_that_are_over_leave_nothing_behind() {
        let leases = Leases::default();
        leases.grant(A, T).await;
        drop(leases.check(A, T).await.unwrap());
        leases.revoke(A, T);
        assert!(leases.lock().is_empty());
    }
}
