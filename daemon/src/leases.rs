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
/// one who held it before (I-2). Giving a lease and taking it away never wait, since the driver must not
/// wait for the disk; what of it is still being written is waited for by whoever depends on that
/// ([`Settling`]).
#[derive(Clone, Debug, Default)]
pub struct Leases {
    table: Arc<Mutex<Table>>,
}

#[derive(Debug, Default)]
struct Table {
    leases: HashMap<TrajectoryId, Lease>,
    /// How often a trajectory was given to somebody.
    grants: u64,
}

#[derive(Debug, Default)]
struct Lease {
    holder: Option<Incarnation>,
    grant: GrantId,
    /// Its number, as the controller counts leases of this trajectory.
    number: u64,
    gate: Arc<RwLock<()>>,
}

impl Lease {
    fn void(&mut self, holder: Incarnation) {
        if self.holder == Some(holder) {
            self.holder = None;
        }
    }

    /// Whether nothing is lost with it: nobody holds it, writes under it or waits for who does.
    fn is_idle(&self) -> bool {
        self.holder.is_none() && Arc::strong_count(&self.gate) == 1
    }
}

/// Proof that a lease holds; while it lives the trajectory settles for nobody else.
#[derive(Debug)]
pub struct Held {
    number: u64,
    _gate: OwnedRwLockReadGuard<()>,
}

impl Held {
    /// The number of the lease, as the controller counts leases of this trajectory.
    pub fn number(&self) -> u64 {
        self.number
    }
}

/// Names one giving of a trajectory, so that what was begun for an earlier one is dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantId(u64);

/// A trajectory was given to an agent.
#[derive(Debug)]
#[must_use = "what is stored of it may be read only when it has settled"]
pub struct Grant {
    /// Which giving.
    pub id: GrantId,
    /// What those who held it before are still writing.
    pub settling: Settling,
}

/// Writes under leases that do not hold any more.
#[derive(Debug, Default)]
#[must_use = "these writes are not durable yet"]
pub struct Settling(Vec<Arc<RwLock<()>>>);

impl Settling {
    /// Whether nothing is being written.
    pub fn is_over(&self) -> bool {
        self.0.iter().all(|gate| gate.try_write().is_ok())
    }

    /// Waits until what was being written is durable, or is not going to be.
    pub async fn over(self) {
        for gate in self.0 {
            drop(gate.write_owned().await);
        }
    }
}

impl Leases {
    /// Checks a lease and keeps the trajectory from settling while the answer lives.
    pub async fn check(
        &self,
        caller: Incarnation,
        trajectory: TrajectoryId,
    ) -> Result<Held, LeaseError> {
        let void = LeaseError::Void { caller, trajectory };
        let gate = {
            let table = self.lock();
            table.leases.get(&trajectory).map(|l| Arc::clone(&l.gate))
        };
        let gate = gate.ok_or(void.clone())?.read_owned().await;
        // Looked at behind the gate: it may have moved while this waited.
        let table = self.lock();
        let lease = table.leases.get(&trajectory);
        match lease.and_then(|l| Some((l.holder?, l.number))) {
            Some((holder, number)) if holder == caller => Ok(Held {
                number,
                _gate: gate,
            }),
            Some((holder, _)) => Err(LeaseError::HeldByAnother {
                caller,
                trajectory,
                holder,
            }),
            None => Err(void),
        }
    }

    /// Gives a trajectory to an agent under a number of the controller's; whoever held it before begins no
    /// further write.
    pub fn grant(&self, holder: Incarnation, trajectory: TrajectoryId, number: u64) -> Grant {
        let mut table = self.lock();
        table.grants += 1;
        let id = GrantId(table.grants);
        let lease = table.leases.entry(trajectory).or_default();
        (lease.holder, lease.grant, lease.number) = (Some(holder), id, number);
        let settling = Settling(vec![Arc::clone(&lease.gate)]);
        Grant { id, settling }
    }

    /// An agent goes on with a trajectory that it has: nothing is read for it, so nothing has to settle.
    pub fn keep(&self, holder: Incarnation, trajectory: TrajectoryId, number: u64) {
        if !self.renew(holder, trajectory, number) {
            let _ = self.grant(holder, trajectory, number);
        }
    }

    /// Whether it is its holder's, which holds it under this number from now on.
    fn renew(&self, holder: Incarnation, trajectory: TrajectoryId, number: u64) -> bool {
        let mut table = self.lock();
        let lease = table.leases.get_mut(&trajectory);
        let Some(lease) = lease.filter(|l| l.holder == Some(holder)) else {
            return false;
        };
        lease.number = number;
        true
    }

    /// Whether a trajectory is still with whom it was given to then: it was not taken away, not ended,
    /// and not given to anybody since.
    pub fn stands(&self, trajectory: TrajectoryId, grant: GrantId) -> bool {
        let table = self.lock();
        let lease = table.leases.get(&trajectory);
        lease.is_some_and(|l| l.holder.is_some() && l.grant == grant)
    }

    /// Takes a trajectory from an agent, unless another has it already.
    pub fn revoke(&self, holder: Incarnation, trajectory: TrajectoryId) {
        let mut table = self.lock();
        if let Some(lease) = table.leases.get_mut(&trajectory) {
            lease.void(holder);
            if lease.is_idle() {
                table.leases.remove(&trajectory);
            }
        }
    }

    /// Takes trajectories from whoever holds them. For what is thrown away: a late turn must not survive
    /// it, so it is thrown away only when they have settled.
    pub fn end<'a>(&self, trajectories: impl IntoIterator<Item = &'a TrajectoryId>) -> Settling {
        let mut table = self.lock();
        let ended = trajectories.into_iter();
        let ended = ended.filter_map(|trajectory| table.leases.remove(trajectory));
        Settling(ended.map(|lease| lease.gate).collect())
    }

    /// Takes everything from an agent that is no more.
    pub fn revoke_all(&self, holder: Incarnation) {
        self.lock().leases.retain(|_, lease| {
            lease.void(holder);
            !lease.is_idle()
        });
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
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

    fn grant(leases: &Leases, holder: Incarnation) -> GrantId {
        let Grant { id, settling } = leases.grant(holder, T, 1);
        assert!(settling.is_over());
        id
    }

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
        grant(&leases, A);
        leases.check(A, T).await.unwrap();
        grant(&leases, B);
        assert_eq!(
            leases.check(A, T).await.unwrap_err().to_string(),
            "#1 does not hold 1.0.0: #2 does"
        );
    }

    #[tokio::test]
    async fn a_late_revocation_does_not_take_it_from_the_next_holder() {
        let leases = Leases::default();
        grant(&leases, A);
        grant(&leases, B);
        leases.revoke(A, T);
        leases.revoke_all(A);
        leases.check(B, T).await.unwrap();
    }

    #[tokio::test]
    async fn a_trajectory_moves_at_once_and_settles_after_the_last_write_of_the_one_before() {
        let leases = Leases::default();
        grant(&leases, A);
        let writing = leases.check(A, T).await.unwrap();
        // Its end is seen at once, and from here on it begins no further write.
        leases.revoke_all(A);
        assert!(leases.check(A, T).await.is_err());
        let Grant { id, settling } = leases.grant(B, T, 2);
        assert!(leases.stands(T, id) && !settling.is_over());
        let mut over = std::pin::pin!(settling.over());
        assert!(futures::poll!(&mut over).is_pending());
        drop(writing);
        over.await;
        leases.check(B, T).await.unwrap();
    }

    #[tokio::test]
    async fn what_is_thrown_away_settles_after_the_last_write_of_it() {
        let leases = Leases::default();
        grant(&leases, A);
        let writing = leases.check(A, T).await.unwrap();
        let settling = leases.end(&[T]);
        assert!(leases.check(A, T).await.is_err());
        assert!(!settling.is_over());
        drop(writing);
        assert!(settling.over().now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_write_of_one_trajectory_keeps_no_other_waiting() {
        let leases = Leases::default();
        let other = TrajectoryId { member: 1, ..T };
        grant(&leases, A);
        let _writing = leases.check(A, T).await.unwrap();
        assert!(leases.grant(B, other, 1).settling.is_over());
    }

    #[test]
    fn a_grant_stands_until_the_trajectory_is_taken_away_or_given_again() {
        let leases = Leases::default();
        let first = grant(&leases, A);
        leases.keep(A, T, 2);
        assert!(leases.stands(T, first), "its holder goes on with it");
        let again = grant(&leases, A);
        assert!(!leases.stands(T, first) && leases.stands(T, again));
        leases.revoke(A, T);
        assert!(!leases.stands(T, again));
        let third = grant(&leases, A);
        let _ = leases.end(&[T]);
        assert!(!leases.stands(T, third));
        leases.keep(B, T, 3);
        assert!(leases.renew(B, T, 3));
    }

    #[tokio::test]
    async fn what_is_written_says_under_which_lease_it_was() {
        let leases = Leases::default();
        let number = async || leases.check(A, T).await.unwrap().number();
        let _ = leases.grant(A, T, 7);
        assert_eq!(number().await, 7);
        leases.keep(A, T, 8);
        assert_eq!(number().await, 8);
        let _ = leases.grant(A, T, 9);
        assert_eq!(number().await, 9);
    }

    #[tokio::test]
    async fn leases_that_are_over_leave_nothing_behind() {
        let leases = Leases::default();
        grant(&leases, A);
        drop(leases.check(A, T).await.unwrap());
        leases.revoke(A, T);
        assert!(leases.lock().leases.is_empty());
    }
}
