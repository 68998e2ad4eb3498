//! What the fake nodes heard and how long they waited for it.
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Waits, in microseconds.
#[derive(Debug, Default)]
pub struct Waits(Mutex<Vec<u32>>);

/// A name and number of the job: a rank, a rollout or an agent.
pub(super) type Place = (String, u32);

/// Shared by all nodes. Waits are noted while it is on only; counts always.
#[derive(Debug, Default)]
pub struct Ledger {
    measures: AtomicBool,
    /// Nodes that are joined.
    pub joined: AtomicU64,
    /// Instances whose links are open.
    pub linked: AtomicU64,
    /// Rollouts' pulls that are done.
    pub pulls: AtomicU64,
    /// Turns that the leader acknowledged.
    pub appends: AtomicU64,
    /// Conversations of which it acknowledged the end.
    pub finished: AtomicU64,
    /// Steps that the rank took.
    pub steps: AtomicU64,
    /// Streams of nodes that ended, which is what a node meets that was not heard in time.
    pub let_go: AtomicU64,
    /// Calls of agents that were refused, other than for a lease that is void.
    pub refused: AtomicU64,
    /// Why the last of them was.
    pub why: Mutex<String>,
    /// From an instance's end until somebody is ordered to start it again.
    pub verdicts: Waits,
    /// From an agent's request for a rollout, which passes the leader's one loop as a beat does, to the answer.
    pub routes: Waits,
    /// From a turn to its acknowledgement.
    pub turns: Waits,
    /// What the fake nodes themselves are late with a beat.
    pub late: Waits,
    ended: Mutex<HashMap<Place, Instant>>,
}

impl Waits {
    pub(super) fn add(&self, waited: Duration) {
        let us = u32::try_from(waited.as_micros()).unwrap_or(u32::MAX);
        lock(&self.0).push(us);
    }

    /// All of them in order; none are left.
    pub fn take(&self) -> Vec<u32> {
        let mut all = std::mem::take(&mut *lock(&self.0));
        all.sort_unstable();
        all
    }
}

impl Ledger {
    /// Notes waits from now on, or no more.
    pub fn measure(&self, measures: bool) {
        self.measures.store(measures, Ordering::Relaxed);
    }

    pub(super) fn note(&self, waits: &Waits, since: Instant) {
        if self.measures.load(Ordering::Relaxed) {
            waits.add(since.elapsed());
        }
    }

    /// An instance is about to end.
    pub(super) fn ends(&self, place: Place) {
        lock(&self.ended).insert(place, Instant::now());
    }

    /// An order to start an instance came.
    pub(super) fn is_ordered(&self, place: &Place) {
        if let Some(since) = lock(&self.ended).remove(place) {
            self.note(&self.verdicts, since);
        }
    }

    /// Instances that ended and that nobody was ordered to start yet.
    pub fn unanswered(&self) -> Vec<String> {
        let name = |(role, index): &Place| format!("{role}-{index}");
        lock(&self.ended).keys().map(name).collect()
    }

    pub(super) fn refused(&self, who: &str, status: &tonic::Status) {
        if status.code() != tonic::Code::FailedPrecondition {
            self.refused.fetch_add(1, Ordering::Relaxed);
            *lock(&self.why) = format!("{who}: {status}");
        }
    }
}

pub(super) fn one_more(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is counted stays true though somebody who counted panicked.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
