//! Ordered sets that are looked up by place: what is on the same node first, then what is in the same
//! rack, then the rest.
use crate::core::roster::nodes::Labels;
use crate::ids::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// A rack of a data centre, as a digest of their labels: a look-up costs no text. Two racks of one
/// digest count as near, which may cost a longer way and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rack(u64);

impl Rack {
    /// The rack that the labels name, if they do.
    pub fn of(labels: &Labels) -> Option<Self> {
        use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};
        let named = !labels.rack.is_empty();
        named.then(|| {
            Self(xxh3_64_with_seed(
                labels.rack.as_bytes(),
                xxh3_64(labels.dc.as_bytes()),
            ))
        })
    }
}

/// Where an instance is, as far as the way to others depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Its node.
    pub node: Option<NodeId>,
    /// Its node's rack.
    pub rack: Option<Rack>,
}

/// The way between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Distance {
    /// None to speak of.
    SameNode,
    /// One switch.
    SameRack,
    /// Any.
    Far,
}

/// An ordered set, with the parts of it that are in one place.
#[derive(Clone, Debug, PartialEq)]
pub struct Nearby<T> {
    all: BTreeSet<T>,
    nodes: BTreeMap<NodeId, BTreeSet<T>>,
    racks: BTreeMap<Rack, BTreeSet<T>>,
}

impl<T> Default for Nearby<T> {
    fn default() -> Self {
        Self {
            all: BTreeSet::new(),
            nodes: BTreeMap::new(),
            racks: BTreeMap::new(),
        }
    }
}

impl<T: Ord + Copy> Nearby<T> {
    /// Takes an entry in, or out.
    pub fn put(&mut self, place: Place, entry: T, there: bool) {
        put(&mut self.all, entry, there);
        if let Some(node) = place.node {
            put_among(&mut self.nodes, node, entry, there);
        }
        if let Some(rack) = place.rack {
            put_among(&mut self.racks, rack, entry, there);
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The entry after that one, or the first.
    pub fn after(&self, last: Option<T>) -> Option<T> {
        match last {
            None => self.all.first().copied(),
            Some(last) => {
                let after = (Bound::Excluded(last), Bound::Unbounded);
                self.all.range(after).next().copied()
            }
        }
    }

    /// All of them, those nearest to the place first; a near one comes again among the farther.
    pub fn from(&self, place: Place) -> impl Iterator<Item = (Distance, T)> {
        let here = place.node.and_then(|node| self.nodes.get(&node));
        let near = place.rack.and_then(|rack| self.racks.get(&rack));
        let parts = [
            (Distance::SameNode, here),
            (Distance::SameRack, near),
            (Distance::Far, Some(&self.all)),
        ];
        let parts = parts.into_iter();
        parts.flat_map(|(way, part)| part.into_iter().flatten().map(move |entry| (way, *entry)))
    }
}

/// Takes an entry in, or out.
pub fn put<T: Ord>(set: &mut BTreeSet<T>, entry: T, there: bool) {
    let _ = match there {
        true => set.insert(entry),
        false => set.remove(&entry),
    };
}

fn put_among<K: Ord, T: Ord>(parts: &mut BTreeMap<K, BTreeSet<T>>, key: K, entry: T, there: bool) {
    use std::collections::btree_map::Entry;
    match parts.entry(key) {
        Entry::Vacant(_) if !there => {}
        Entry::Vacant(free) => put(free.insert(BTreeSet::new()), entry, true),
        Entry::Occupied(mut part) => {
            put(part.get_mut(), entry, there);
            if part.get().is_empty() {
                part.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rack(dc: &str, rack: &str) -> Option<Rack> {
        Rack::of(&Labels {
            dc: dc.to_owned(),
            rack: rack.to_owned(),
            ..Labels::default()
        })
    }

    #[test]
    fn a_rack_without_a_label_is_none_and_one_name_in_two_data_centres_is_two_racks() {
        assert_eq!(rack("a", ""), None);
        assert_eq!(rack("a", "r1"), rack("a", "r1"));
        assert_ne!(rack("a", "r1"), rack("b", "r1"));
    }

    #[test]
    fn what_is_on_the_node_comes_before_what_is_in_the_rack_and_then_the_rest() {
        let place = |node, name| Place {
            node: Some(NodeId(node)),
            rack: rack("a", name),
        };
        let mut set = Nearby::default();
        set.put(place(0, "r1"), 1, true);
        set.put(place(1, "r2"), 2, true);
        set.put(place(2, "r2"), 3, true);
        let ways: Vec<_> = set.from(place(2, "r2")).collect();
        use Distance::{Far, SameNode, SameRack};
        let found = [
            (SameNode, 3),
            (SameRack, 2),
            (SameRack, 3),
            (Far, 1),
            (Far, 2),
            (Far, 3),
        ];
        assert_eq!(ways, found);
        for (node, name, n) in [(0, "r1", 1), (1, "r2", 2), (2, "r2", 3)] {
            set.put(place(node, name), n, false);
        }
        assert_eq!(set, Nearby::default());
    }
}
