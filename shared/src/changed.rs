//! What changed since it was last taken: how a table knows which of its entries are to be written again.
use crate::hash::IdMap;
use std::hash::Hash;

/// The keys of entries that changed since they were last taken. As long as nothing was ever taken nothing
/// is noted, for all of it is to be taken: a table whose changes nobody asks for costs nothing.
///
/// It is no part of what a table remembers, so two of them are always equal.
#[derive(Clone, Debug)]
pub struct Changed<K> {
    since: Option<IdMap<K, ()>>,
}

impl<K> Default for Changed<K> {
    fn default() -> Self {
        Self { since: None }
    }
}

impl<K> PartialEq for Changed<K> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<K> Eq for Changed<K> {}

impl<K: Copy + Ord + Hash> Changed<K> {
    /// The entry of this key was changed, added or removed.
    pub fn note(&mut self, key: K) {
        if let Some(since) = &mut self.since {
            since.insert(key, ());
        }
    }

    /// The same of many.
    pub fn note_all(&mut self, keys: impl IntoIterator<Item = K>) {
        if let Some(since) = &mut self.since {
            since.extend(keys.into_iter().map(|key| (key, ())));
        }
    }

    /// What changed since this was last asked, in order; none: everything, for it was never asked.
    pub fn take(&mut self) -> Option<Vec<K>> {
        let since = self.since.replace(IdMap::default())?;
        let mut keys: Vec<K> = since.into_keys().collect();
        keys.sort_unstable();
        Some(keys)
    }
}

/// The same of entries over which a short one may lie, with the part of them that changes all the time. The
/// short one is written alone where nothing else changed, and goes when the whole entry is written.
#[derive(Clone, Debug)]
pub struct Layered<K> {
    whole: Changed<K>,
    over: Changed<K>,
    /// Over which a short one was left by what was last taken.
    left: IdMap<K, ()>,
}

/// What changed of entries with short ones over them, each in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layers<K> {
    /// To be written whole.
    pub whole: Vec<K>,
    /// Those of them whose short entry goes.
    pub bare: Vec<K>,
    /// Of these the short entry is to be written.
    pub over: Vec<K>,
}

impl<K> Default for Layered<K> {
    fn default() -> Self {
        Self {
            whole: Changed::default(),
            over: Changed::default(),
            left: IdMap::default(),
        }
    }
}

impl<K: Copy + Ord + Hash> Layered<K> {
    /// The entry of this key was changed, added or removed.
    pub fn note(&mut self, key: K) {
        self.whole.note(key);
    }

    /// The same of many.
    pub fn note_all(&mut self, keys: impl IntoIterator<Item = K>) {
        self.whole.note_all(keys);
    }

    /// Nothing but what the short entry has was changed.
    pub fn note_over(&mut self, key: K) {
        self.over.note(key);
    }

    /// What changed since this was last asked; none: everything, for it was never asked, or that is
    /// wanted.
    pub fn take(&mut self, everything: bool) -> Option<Layers<K>> {
        // Both are asked: what was asked once is noted from then on.
        let (whole, over) = (self.whole.take(), self.over.take());
        let (Some(whole), Some(mut over), false) = (whole, over, everything) else {
            self.left.clear();
            return None;
        };
        over.retain(|key| whole.binary_search(key).is_err());
        let covered = |key: &K| self.left.remove(key).is_some();
        let bare = whole.iter().copied().filter(covered).collect();
        self.left.extend(over.iter().map(|key| (*key, ())));
        Some(Layers { whole, bare, over })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_short_entry_is_written_alone_and_goes_when_the_whole_one_is_written() {
        let mut layered = Layered::default();
        assert_eq!(layered.take(false), None);
        layered.note_over(1);
        layered.note_over(2);
        layered.note(2);
        let taken = layered.take(false).unwrap();
        assert_eq!(
            (taken.whole, taken.bare, taken.over),
            (vec![2], vec![], vec![1])
        );
        layered.note(1);
        let taken = layered.take(false).unwrap();
        assert_eq!(
            (taken.whole, taken.bare, taken.over),
            (vec![1], vec![1], vec![])
        );
        layered.note_over(1);
        assert_eq!(layered.take(true), None);
        layered.note(1);
        assert_eq!(layered.take(false).unwrap().bare, [] as [i32; 0]);
    }

    #[test]
    fn everything_counts_as_changed_until_it_was_taken_once_then_each_change_once_and_in_order() {
        let mut changed = Changed::default();
        changed.note(7);
        assert_eq!(changed.take(), None);
        assert_eq!(changed.take(), Some(vec![]));
        changed.note(3);
        changed.note_all([1, 3, 2]);
        assert_eq!(changed.take(), Some(vec![1, 2, 3]));
        assert_eq!(changed.take(), Some(vec![]));
    }
}
