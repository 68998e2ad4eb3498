//! The map itself: keys, leases, and the changes that made them what they are.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::AT;
use crate::{
    ArbiterError, Change, Changed, Compare, Entry, Lease, LeaseId, Revision, Transacted, Write,
};

/// What etcd grants at least where its election timeout is 500 ms.
const LEAST_TTL: Duration = Duration::from_secs(1);
/// As many as etcd takes in one transaction.
const MAX_OPERATIONS: usize = 128;
/// Near enough to what etcd takes in one request.
const MAX_REQUEST_BYTES: usize = 3 << 19;

#[derive(Debug)]
pub(super) struct Store {
    now: Duration,
    revision: Revision,
    kept: Revision,
    entries: BTreeMap<String, Entry>,
    /// Their duration, and when they end.
    leases: BTreeMap<LeaseId, (Duration, Duration)>,
    last_lease: i64,
    history: Vec<Changed>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            now: Duration::ZERO,
            revision: Revision(1),
            kept: Revision(0),
            entries: BTreeMap::new(),
            leases: BTreeMap::new(),
            last_lease: 0,
            history: Vec::new(),
        }
    }
}

impl Store {
    pub fn read(&self, key: &str) -> Result<Option<Entry>, ArbiterError> {
        named(key)?;
        Ok(self.entries.get(key).cloned())
    }

    pub fn read_prefix(&self, prefix: &str) -> (Vec<Entry>, Revision) {
        let found = self.entries.range(prefix.to_owned()..);
        let found = found.take_while(|(key, _)| key.starts_with(prefix));
        let found = found.map(|(_, entry)| entry.clone()).collect();
        (found, self.revision)
    }

    pub fn transact(
        &mut self,
        compares: &[Compare],
        writes: Vec<Write>,
    ) -> Result<Transacted, ArbiterError> {
        check(compares, &writes)?;
        if !compares.iter().all(|compare| self.holds(compare)) {
            let keys: BTreeSet<&str> = compares.iter().map(Compare::key).collect();
            let found = keys.into_iter().filter_map(|key| self.entries.get(key));
            return Ok(Transacted::Refused {
                found: found.cloned().collect(),
            });
        }
        // Looked at after the compares, as etcd does.
        for write in &writes {
            if let Write::Put {
                lease: Some(lease), ..
            } = write
                && !self.leases.contains_key(lease)
            {
                return Err(ArbiterError::LeaseOver { lease: *lease });
            }
        }
        self.write(writes);
        Ok(Transacted::Done(self.revision))
    }

    fn holds(&self, compare: &Compare) -> bool {
        let entry = self.entries.get(compare.key());
        match compare {
            Compare::Absent { .. } => entry.is_none(),
            Compare::Created { revision, .. } => entry.is_some_and(|e| e.created == *revision),
            Compare::Modified { revision, .. } => entry.is_some_and(|e| e.modified == *revision),
        }
    }

    /// One change; none where nothing is there to be deleted.
    fn write(&mut self, writes: Vec<Write>) {
        let revision = self.revision.next();
        let mut changes = Vec::new();
        for write in writes {
            match write {
                Write::Put { key, value, lease } => {
                    let before = self.entries.get(&key);
                    let entry = Entry {
                        created: before.map_or(revision, |entry| entry.created),
                        modified: revision,
                        key: key.clone(),
                        value,
                        lease,
                    };
                    self.entries.insert(key, entry.clone());
                    changes.push(Change::Put(entry));
                }
                Write::Delete { key } => {
                    if self.entries.remove(&key).is_some() {
                        changes.push(Change::Deleted { key });
                    }
                }
            }
        }
        if !changes.is_empty() {
            self.revision = revision;
            self.history.push(Changed { revision, changes });
        }
    }

    pub fn grant(&mut self, ttl: Duration) -> Lease {
        let whole = Duration::from_secs(ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0));
        let ttl = whole.max(LEAST_TTL);
        self.last_lease += 1;
        let id = LeaseId(self.last_lease);
        self.leases.insert(id, (ttl, self.now + ttl));
        Lease { id, ttl }
    }

    pub fn keep_alive(&mut self, lease: LeaseId) -> Result<Duration, ArbiterError> {
        let found = self.leases.get_mut(&lease);
        let (ttl, end) = found.ok_or(ArbiterError::LeaseOver { lease })?;
        *end = self.now + *ttl;
        Ok(*ttl)
    }

    pub fn revoke(&mut self, lease: LeaseId) {
        self.leases.remove(&lease);
        let bound = self.entries.values().filter(|e| e.lease == Some(lease));
        let bound = bound.map(|e| Write::Delete { key: e.key.clone() });
        self.write(bound.collect());
    }

    pub fn advance(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let first = self.leases.iter().min_by_key(|(_, (_, end))| *end);
            match first.map(|(lease, (_, end))| (*lease, *end)) {
                Some((lease, end)) if end <= until => {
                    self.now = end;
                    self.revoke(lease);
                }
                _ => break,
            }
        }
        self.now = until;
    }

    pub fn compact(&mut self, kept: Revision) {
        self.kept = kept.min(self.revision).max(self.kept);
        self.history.retain(|changed| changed.revision >= self.kept);
    }

    /// The first change of such keys from a revision on.
    pub fn next_change(
        &self,
        prefix: &str,
        from: Revision,
    ) -> Result<Option<Changed>, ArbiterError> {
        if from.max(Revision(1)) < self.kept {
            return Err(ArbiterError::Compacted { kept: self.kept });
        }
        let later = self
            .history
            .partition_point(|changed| changed.revision < from);
        let mut later = self.history.iter().skip(later);
        Ok(later.find_map(|changed| {
            let changes = changed.changes.iter();
            let changes = changes.filter(|change| change.key().starts_with(prefix));
            let changes: Vec<_> = changes.cloned().collect();
            let revision = changed.revision;
            (!changes.is_empty()).then_some(Changed { revision, changes })
        }))
    }
}

fn refused(why: &str) -> ArbiterError {
    ArbiterError::Refused {
        at: AT.to_owned(),
        why: why.to_owned(),
    }
}

fn named(key: &str) -> Result<(), ArbiterError> {
    match key {
        "" => Err(refused("etcdserver: key is not provided")),
        _ => Ok(()),
    }
}

fn check(compares: &[Compare], writes: &[Write]) -> Result<(), ArbiterError> {
    if compares.len().max(writes.len()) > MAX_OPERATIONS {
        return Err(refused("etcdserver: too many operations in txn request"));
    }
    compares
        .iter()
        .try_for_each(|compare| named(compare.key()))?;
    writes.iter().try_for_each(|write| named(write.key()))?;
    let puts = writes
        .iter()
        .filter(|write| matches!(write, Write::Put { .. }));
    let twice = |key| writes.iter().filter(|write| write.key() == key).count() > 1;
    let bytes = writes.iter().map(|write| match write {
        Write::Put { key, value, .. } => key.len() + value.len(),
        Write::Delete { key } => key.len(),
    });
    if bytes.sum::<usize>() > MAX_REQUEST_BYTES {
        return Err(refused("etcdserver: request is too large"));
    }
    // To etcd, two deletes of a key are no mistake.
    if puts.map(Write::key).any(twice) {
        return Err(refused("etcdserver: duplicate key given in txn request"));
    }
    Ok(())
}
