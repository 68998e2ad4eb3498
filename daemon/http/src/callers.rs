//! Who is connected, and who of them has shown no key yet.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::Extensions;
use robust_identity::network;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long a connection may live on which nobody showed a key.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Such connections at a time. With one more the oldest is closed of the address (of IPv6: the network) that has the
/// most: a stranger who holds connections open keeps nobody out.
pub const MOST_UNPROVEN: usize = 64;
/// Connections at a time, of those who have a key; each may keep a request's body in memory.
pub const MOST_CALLERS: usize = 4096;

/// All connections of a server. Clones share them.
#[derive(Clone, Default)]
pub struct Callers(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    next: u64,
    /// In the order in which they came.
    unproven: VecDeque<Unproven>,
    all: usize,
}

struct Unproven {
    number: u64,
    from: IpAddr,
    closes: Arc<Notify>,
}

/// One connection; dropped, it is over. Requests find it among their extensions.
pub struct Caller {
    callers: Callers,
    number: u64,
    closes: Arc<Notify>,
    entered: Instant,
}

/// Why a connection without a key is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Nobody has shown a key on it for [`PATIENCE`].
    Late,
    /// It makes room for another.
    ForAnother,
}

impl Callers {
    /// One more connection; none where even those with keys are too many.
    pub fn enter(&self, from: IpAddr) -> Option<Arc<Caller>> {
        let mut table = self.lock();
        if table.all >= MOST_CALLERS + MOST_UNPROVEN {
            return None;
        }
        table.all += 1;
        table.next += 1;
        let (number, closes) = (table.next, Arc::new(Notify::new()));
        table.unproven.push_back(Unproven {
            number,
            from: network(from),
            closes: Arc::clone(&closes),
        });
        if table.unproven.len() > MOST_UNPROVEN {
            table.close_one();
        }
        let callers = self.clone();
        Some(Arc::new(Caller {
            callers,
            number,
            closes,
            entered: Instant::now(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // No code can panic while it holds the lock, so a poisoned table is as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn close_one(&mut self) {
        let mut of: HashMap<IpAddr, usize> = HashMap::new();
        for caller in &self.unproven {
            *of.entry(caller.from).or_default() += 1;
        }
        let most = of.values().copied().max().unwrap_or_default();
        let oldest = self.unproven.iter().position(|one| of[&one.from] == most);
        if let Some(closed) = oldest.and_then(|at| self.unproven.remove(at)) {
            closed.closes.notify_one();
        }
    }

    fn forget(&mut self, number: u64) -> bool {
        let at = self.unproven.iter().position(|one| one.number == number);
        at.and_then(|at| self.unproven.remove(at)).is_some()
    }
}

impl Caller {
    /// A request that carries these extensions showed a key.
    pub fn proven_by(extensions: &Extensions) {
        if let Some(caller) = extensions.get::<Arc<Self>>() {
            caller.proves();
        }
    }

    /// Somebody showed a key on it.
    pub fn proves(&self) {
        self.callers.lock().forget(self.number);
    }

    /// Until it is to be closed, and why. One with a key never is.
    pub async fn without_key(&self) -> Closed {
        tokio::select! {
            () = self.closes.notified() => return Closed::ForAnother,
            () = tokio::time::sleep_until(self.entered + PATIENCE) => {}
        }
        match self.is_unproven() {
            true => Closed::Late,
            false => std::future::pending().await,
        }
    }

    /// Whether none has until now.
    fn is_unproven(&self) -> bool {
        let table = self.callers.lock();
        table.unproven.iter().any(|one| one.number == self.number)
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        let mut table = self.callers.lock();
        table.forget(self.number);
        table.all -= 1;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn is_closed(caller: &Caller) -> bool {
        let closed = std::pin::pin!(caller.closes.notified());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        closed.poll(&mut cx).is_ready()
    }

    #[test]
    fn strangers_make_room_for_each_other_and_nobody_else_does() {
        let callers = Callers::default();
        let [stranger, other] = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let keyed = callers.enter(stranger).unwrap();
        keyed.proves();
        let quiet = callers.enter(other).unwrap();
        let held: Vec<_> = std::iter::repeat_with(|| callers.enter(stranger).unwrap())
            .take(MOST_UNPROVEN)
            .collect();
        assert!(is_closed(&held[0]), "the oldest of the many");
        assert!(!is_closed(&held[1]) && !is_closed(&quiet) && !is_closed(&keyed));
        assert!(quiet.is_unproven() && !keyed.is_unproven());
        drop((held, quiet, keyed));
        let table = callers.lock();
        assert_eq!((table.all, table.unproven.len()), (0, 0));
    }

    #[test]
    fn connections_with_a_key_have_a_bound_of_their_own() {
        let callers = Callers::default();
        let from = IpAddr::from([10, 0, 0, 1]);
        let mut held = Vec::new();
        while let Some(caller) = callers.enter(from) {
            caller.proves();
            held.push(caller);
        }
        assert_eq!(held.len(), MOST_CALLERS + MOST_UNPROVEN);
        held.pop();
        assert!(callers.enter(from).is_some());
    }
}
