//! Which agent holds which trajectory now, checked at every write.
use robust_shared::ids::{Incarnation, TrajectoryId};
use std::collections::HashMap;
use std::sync::Arc;
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

/// The leases. Writers of trajectories hold the read side from the check until their write is
/// durable; the driver takes the write side to move a lease. So a trajectory handed to another
/// agent is read only after the last write of the one before (I-2).
#[derive(Clone, Debug, Default)]
pub struct Leases {
    table: Arc<RwLock<HashMap<TrajectoryId, Incarnation>>>,
}

/// Proof that a lease holds; while it lives no lease moves.
#[derive(Debug)]
pub struct Held {
    _table: OwnedRwLockReadGuard<HashMap<TrajectoryId, Incarnation>>,
}

impl Leases {
    /// Checks a lease and keeps it from moving while the answer lives.
    pub async fn check(
        &self,
        caller: Incarnation,
        trajectory: TrajectoryId,
    ) -> Result<Held, LeaseError> {
        let table = self.table.clone().read_owned().await;
        match table.get(&trajectory) {
            Some(&holder) if holder == caller => Ok(Held { _table: table }),
            Some(&holder) => Err(LeaseError::HeldByAnother {
                caller,
                trajectory,
                holder,
            }),
            None => Err(LeaseError::Void { caller, trajectory }),
        }
    }

    /// Gives a trajectory to an agent; whoever held it before does no more.
    pub async fn grant(&self, holder: Incarnation, trajectory: TrajectoryId) {
        self.table.write().await.insert(trajectory, holder);
    }

    /// Takes a trajectory from an agent, unless another has it already.
    pub async fn revoke(&self, holder: Incarnation, trajectory: TrajectoryId) {
        let mut table = self.table.write().await;
        if table.get(&trajectory) == Some(&holder) {
            table.remove(&trajectory);
        }
    }

    /// Takes everything from an agent that is no more.
    pub async fn revoke_all(&self, holder: Incarnation) {
        self.table
            .write()
            .await
            .retain(|_, held_by| *held_by != holder);
    }

    /// What an agent holds, in order.
    pub async fn held_by(&self, holder: Incarnation) -> Vec<TrajectoryId> {
        let table = self.table.read().await;
        let mut held: Vec<_> = table
            .iter()
            .filter(|(_, by)| **by == holder)
            .map(|(t, _)| *t)
            .collect();
        held.sort_unstable();
        held
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

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
        leases.revoke(A, T).await;
        leases.revoke_all(A).await;
        assert_eq!(leases.held_by(B).await, [T]);
    }

    #[tokio::test]
    async fn a_lease_does_not_move_while_a_write_under_it_runs() {
        let leases = Leases::default();
        leases.grant(A, T).await;
        let writing = leases.check(A, T).await.unwrap();
        let mover = leases.clone();
        let moved = tokio::spawn(async move { mover.grant(B, T).await });
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!moved.is_finished());
        drop(writing);
        moved.await.unwrap();
        assert!(leases.check(A, T).await.is_err());
    }
}
