//! Who calls and has not shown a certificate yet: few, for a short time, and the most insistent goes
//! first.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use robust_identity::network;

use crate::road::CallId;

/// Connections whose handshake is not over. A member's is over within milliseconds.
const LIMIT: usize = 64;

/// Those calls, the oldest first.
pub(super) struct Callers {
    within: Duration,
    all: BTreeMap<CallId, (IpAddr, Instant)>,
}

impl Callers {
    /// Each has so long.
    pub fn new(within: Duration) -> Callers {
        let all = BTreeMap::new();
        Callers { within, all }
    }

    /// One more, and the one that must go for it: of the address with the most, the oldest.
    pub fn add(&mut self, call: CallId, from: IpAddr, now: Instant) -> Option<CallId> {
        self.all.insert(call, (from, now));
        if self.all.len() <= LIMIT {
            return None;
        }
        let mut of_network: BTreeMap<IpAddr, (usize, CallId)> = BTreeMap::new();
        for (call, (from, _)) in &self.all {
            of_network.entry(network(*from)).or_insert((0, *call)).0 += 1;
        }
        let most = of_network
            .into_values()
            .max_by_key(|(count, oldest)| (*count, Reverse(*oldest)));
        let (_, oldest) = most?;
        self.all.remove(&oldest);
        Some(oldest)
    }

    /// Whether it is one of them.
    pub fn has(&self, call: CallId) -> bool {
        self.all.contains_key(&call)
    }

    /// It has shown who it is, or is gone; false if it was not there.
    pub fn remove(&mut self, call: CallId) -> bool {
        self.all.remove(&call).is_some()
    }

    /// Takes out those whose time is over.
    pub fn overdue(&mut self, now: Instant) -> Vec<CallId> {
        let late = |since: &Instant| now.saturating_duration_since(*since) > self.within;
        let overdue = self.all.iter().filter(|(_, (_, since))| late(since));
        let overdue: Vec<CallId> = overdue.map(|(call, _)| *call).collect();
        for call in &overdue {
            self.all.remove(call);
        }
        overdue
    }

    /// When the first one's time is over.
    pub fn due(&self) -> Option<Instant> {
        let since = self.all.values().map(|(_, since)| *since).min();
        // A moment later, so that it is over then.
        since.map(|since| since + self.within + Duration::from_millis(1))
    }

    /// All of them.
    pub fn take_all(&mut self) -> Vec<CallId> {
        std::mem::take(&mut self.all).into_keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_calls_and_says_nothing_crowds_out_itself_only() {
        let (mut callers, now) = (Callers::new(Duration::from_secs(1)), Instant::now());
        let (friend, stranger) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        assert_eq!(callers.add(1, friend, now), None);
        for call in 2..=LIMIT as CallId {
            assert_eq!(callers.add(call, stranger, now), None);
        }
        for call in 0..100 {
            let next = LIMIT as CallId + 1 + call;
            assert_eq!(callers.add(next, stranger, now), Some(2 + call));
        }
        assert!(callers.remove(1));
    }

    #[test]
    fn many_addresses_of_one_network_are_one_caller_and_of_equals_the_oldest_goes() {
        let (mut callers, now) = (Callers::new(Duration::from_secs(1)), Instant::now());
        let of = |net: u16, host: u16| IpAddr::from([0x2001, net, 0, 0, 0, 0, 0, host]);
        assert_eq!(callers.add(1, of(9, 1), now), None);
        for call in 2..=LIMIT as CallId {
            assert_eq!(callers.add(call, of(1, call as u16), now), None);
        }
        let next = LIMIT as CallId + 1;
        assert_eq!(callers.add(next, of(1, 999), now), Some(2));
        let mut callers = Callers::new(Duration::from_secs(1));
        for call in 1..=LIMIT as CallId {
            callers.add(call, of(1000 - call as u16, 1), now);
        }
        assert_eq!(callers.add(next, of(1, 1), now), Some(1));
    }

    #[test]
    fn who_does_not_get_on_with_it_is_late() {
        let (mut callers, now) = (Callers::new(Duration::from_secs(1)), Instant::now());
        callers.add(1, IpAddr::from([10, 0, 0, 1]), now);
        callers.add(
            2,
            IpAddr::from([10, 0, 0, 1]),
            now + Duration::from_millis(900),
        );
        let later = now + Duration::from_millis(1500);
        assert_eq!(callers.overdue(later), [1]);
        assert!(!callers.remove(1) && callers.remove(2));
    }
}
