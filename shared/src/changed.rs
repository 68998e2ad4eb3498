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

#[cfg(test)]
mod tests {
    use super::*;

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
