//! The virtual etcd: a linearizable map of three keys, with leases, revisions and a history that is watched. It does what
//! `robust-arbiter` asks of etcd, whole transactions at one moment of virtual time; what is lost or late is so on the way.
use super::log::Position;
use robust_shared::time::Time;
use std::collections::BTreeMap;
use std::time::Duration;

/// Who leads, as the key says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::world) struct Place {
    pub who: usize,
    /// The change that made the key: the number of the term.
    pub created: u64,
    pub lease: u64,
}

/// What became of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Leader(Option<Place>),
    Sign,
    Head(Position),
}

/// All keys at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::world) struct Keys {
    pub leader: Option<Place>,
    /// The change that put the leader's last sign; 0: there was none.
    pub sign: u64,
    /// The log's head, with the change that put it.
    pub head: Option<(Position, u64)>,
    pub revision: u64,
}

/// The map.
#[derive(Clone, Debug)]
pub(super) struct Arbiter {
    keys: Keys,
    ttl: Duration,
    /// When each lease ends.
    leases: BTreeMap<u64, Time>,
    last_lease: u64,
    history: Vec<(u64, Change)>,
}

impl Arbiter {
    pub fn new(ttl: Duration) -> Self {
        Self {
            keys: Keys {
                leader: None,
                sign: 0,
                head: None,
                revision: 1,
            },
            ttl,
            leases: BTreeMap::new(),
            last_lease: 0,
            history: Vec::new(),
        }
    }

    pub fn read(&self) -> Keys {
        self.keys
    }

    fn change(&mut self, change: Change) -> u64 {
        self.keys.revision += 1;
        self.history.push((self.keys.revision, change));
        self.keys.revision
    }

    /// A new lease, and when it ends.
    pub fn grant(&mut self, now: Time) -> (u64, Time) {
        self.last_lease += 1;
        let end = now + self.ttl;
        self.leases.insert(self.last_lease, end);
        (self.last_lease, end)
    }

    /// Whether the lease lives on.
    pub fn keep_alive(&mut self, lease: u64, now: Time) -> bool {
        let ttl = self.ttl;
        let end = self.leases.get_mut(&lease);
        end.map(|end| *end = now + ttl).is_some()
    }

    /// Ends a lease, and the place that is bound to it.
    pub fn revoke(&mut self, lease: u64) {
        self.leases.remove(&lease);
        if self.keys.leader.is_some_and(|place| place.lease == lease) {
            self.keys.leader = None;
            self.change(Change::Leader(None));
        }
    }

    /// Ends a lease whose time is over; when it is over, if it is not yet.
    pub fn expire(&mut self, lease: u64, now: Time) -> Option<Time> {
        let end = *self.leases.get(&lease)?;
        if end > now {
            return Some(end);
        }
        self.revoke(lease);
        None
    }

    /// etcd chose its own leader anew: all leases live for their whole time from now on.
    pub fn lengthen(&mut self, now: Time) {
        let end = now + self.ttl;
        self.leases.values_mut().for_each(|e| *e = (*e).max(end));
    }

    /// The leader's key, if it is not there and the lease lives: the change that made it.
    pub fn take_place(&mut self, who: usize, lease: u64) -> Option<u64> {
        if self.keys.leader.is_some() || !self.leases.contains_key(&lease) {
            return None;
        }
        let created = self.keys.revision + 1;
        let place = Place {
            who,
            created,
            lease,
        };
        self.keys.leader = Some(place);
        Some(self.change(Change::Leader(Some(place))))
    }

    /// Whether the leader's key is the one that this change made.
    pub fn is_place(&self, created: u64) -> bool {
        self.keys
            .leader
            .is_some_and(|place| place.created == created)
    }

    /// A leader's sign of life, while the place is its own.
    pub fn sign(&mut self, created: u64) -> bool {
        let ours = self.is_place(created);
        if ours {
            self.keys.sign = self.change(Change::Sign);
        }
        ours
    }

    /// Moves the head, if `ours` and it is as `last` says.
    pub fn put_head(&mut self, ours: bool, last: Option<u64>, to: Position) -> Option<u64> {
        if !ours || self.keys.head.map(|(_, revision)| revision) != last {
            return None;
        }
        let revision = self.change(Change::Head(to));
        self.keys.head = Some((to, revision));
        Some(revision)
    }

    /// The changes from a revision on.
    pub fn since(&self, from: u64) -> &[(u64, Change)] {
        let first = self
            .history
            .partition_point(|(revision, _)| *revision < from);
        &self.history[first..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time(ms * 1000)
    }

    #[test]
    fn a_place_goes_with_its_lease_and_its_writes_are_refused_from_then_on() {
        let mut etcd = Arbiter::new(Duration::from_secs(5));
        let (a, _) = etcd.grant(at(0));
        let (b, end) = etcd.grant(at(0));
        let first = etcd.take_place(0, a);
        assert_eq!(etcd.take_place(1, b), None, "it is taken");
        let base = Position::of_base(7);
        let revision = etcd.put_head(etcd.is_place(2), None, base);
        assert_eq!((first, revision), (Some(2), Some(3)));
        etcd.revoke(a);
        assert!(!etcd.keep_alive(a, at(1)) && !etcd.sign(2));
        assert_eq!(etcd.put_head(etcd.is_place(2), revision, base), None);
        assert!(etcd.keep_alive(b, at(1)));
        assert_eq!(etcd.expire(b, end), Some(at(5001)), "it was lengthened");
        assert!(etcd.take_place(1, b).is_some_and(|epoch| epoch > 2));
        assert_eq!(etcd.expire(b, at(5001)), None);
        assert_eq!(etcd.read().leader, None);
        assert_eq!(etcd.since(4).len(), 3);
    }
}
