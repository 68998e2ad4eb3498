//! Who may be given more work, the idlest first. The roster says who that is, whoever hands out the work says
//! how much each one has.
use crate::hash::IdMap;
use crate::ids::{Incarnation, InstanceId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;

/// How much an instance has, which it is, and the incarnation that is there.
type Loaded = (u32, InstanceId, Incarnation);

/// Incarnations that take work, by what they can be chosen by (`K`) and how much each one has.
#[derive(Clone, Debug, PartialEq)]
pub struct Idlest<K> {
    known: IdMap<Incarnation, (K, Loaded)>,
    order: BTreeMap<K, BTreeSet<Loaded>>,
}

impl<K> Default for Idlest<K> {
    fn default() -> Self {
        Self {
            known: IdMap::default(),
            order: BTreeMap::new(),
        }
    }
}

impl<K: Copy + Ord> Idlest<K> {
    /// This incarnation takes work from now on, and has so much.
    pub fn add(&mut self, life: Incarnation, id: InstanceId, key: K, load: u32) {
        self.remove(life);
        let loaded = (load, id, life);
        self.known.insert(life, (key, loaded));
        self.order.entry(key).or_default().insert(loaded);
    }

    /// This incarnation takes none any more.
    pub fn remove(&mut self, life: Incarnation) {
        if let Some((key, loaded)) = self.known.remove(&life)
            && let Some(same) = self.order.get_mut(&key)
        {
            same.remove(&loaded);
            if same.is_empty() {
                self.order.remove(&key);
            }
        }
    }

    /// So much it has now, if it takes work.
    pub fn loads(&mut self, life: Incarnation, load: u32) {
        if let Some((key, (before, id, _))) = self.known.get(&life).copied()
            && before != load
        {
            self.add(life, id, key, load);
        }
    }

    /// Which instance's life this is, if it takes work.
    pub fn who(&self, life: Incarnation) -> Option<InstanceId> {
        self.known.get(&life).map(|(_, (_, id, _))| *id)
    }

    /// The idlest of each key in a range that has less than `limit`, and for which `fits` is true.
    pub fn idlest(
        &self,
        keys: impl RangeBounds<K>,
        limit: u32,
        mut fits: impl FnMut(Incarnation) -> bool,
    ) -> Option<Incarnation> {
        let keys = self.order.range(keys);
        let idlest = keys.filter_map(|(_, same)| {
            let mut below = same.iter().take_while(|(load, ..)| *load < limit);
            below.find(|(.., life)| fits(*life))
        });
        idlest.min().map(|(.., life)| *life)
    }

    /// The highest key that anybody has.
    pub fn last_key(&self) -> Option<K> {
        self.order.last_key_value().map(|(key, _)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Role;

    fn id(index: u32) -> InstanceId {
        InstanceId {
            role: Role::Agent,
            index,
        }
    }

    #[test]
    fn the_one_with_the_least_that_fits_is_chosen_until_all_are_full() {
        let mut all = Idlest::default();
        for (life, key, load) in [(1, 7, 2), (2, 7, 0), (3, 8, 1)] {
            all.add(Incarnation(life), id(life as u32), key, load);
        }
        assert_eq!(all.idlest(.., 3, |_| true), Some(Incarnation(2)));
        assert_eq!(all.idlest(8.., 3, |_| true), Some(Incarnation(3)));
        assert_eq!(all.idlest(.., 3, |life| life.0 == 1), Some(Incarnation(1)));
        all.loads(Incarnation(2), 3);
        assert_eq!(all.idlest(.., 3, |_| true), Some(Incarnation(3)));
        assert_eq!(all.idlest(.., 1, |_| true), None);
        all.remove(Incarnation(3));
        assert_eq!(
            (all.last_key(), all.idlest(8.., 9, |_| true)),
            (Some(7), None)
        );
        // Whoever is not there takes none, however little it has.
        all.loads(Incarnation(3), 0);
        assert_eq!(all.last_key(), Some(7));
    }
}
