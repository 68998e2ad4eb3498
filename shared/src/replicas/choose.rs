//! The rule: another node, in another data centre before another rack before none of both.
use crate::core::Labels;
use std::cmp::Reverse;

/// A node that shards can be at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub labels: Labels,
}

/// How far two copies are from each other: what has to fail at once to take both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spread {
    /// One machine.
    #[default]
    Node,
    /// Two machines of one rack, or of racks that nobody named.
    Machines,
    /// Two racks.
    Racks,
    /// Two data centres.
    Centres,
}

impl Spread {
    /// Between two nodes. A label that one of them does not have says nothing.
    pub fn between(one: &Place, other: &Place) -> Self {
        let differ = |a: &str, b: &str| !a.is_empty() && !b.is_empty() && a != b;
        let (a, b) = (&one.labels, &other.labels);
        match () {
            () if one.name == other.name => Self::Node,
            () if differ(&a.dc, &b.dc) => Self::Centres,
            () if differ(&a.rack, &b.rack) => Self::Racks,
            () => Self::Machines,
        }
    }

    /// The widest among copies at these places.
    pub fn of(places: &[&Place]) -> Self {
        let pairs = places.iter().enumerate().flat_map(|(n, one)| {
            places[n + 1..]
                .iter()
                .map(|other| Self::between(one, other))
        });
        pairs.max().unwrap_or_default()
    }
}

crate::wire::named! {
    Spread:
    /// In a word.
    word {
        Node = "node",
        Machines = "machines",
        Racks = "racks",
        Centres = "data centres",
    }
}

/// Which node is to hold a copy besides those that have one; none when that would make it no safer, or where nobody
/// has one to copy.
/// `load` says how many bytes a node is to hold already: of equally distant ones the least loaded
/// holds it, then the first by name.
pub fn choose<'a>(
    copies: &[&Place],
    nodes: impl IntoIterator<Item = &'a Place>,
    load: impl Fn(&str) -> u64,
) -> Option<&'a Place> {
    let with = |node: &'a Place| {
        let apart = copies.iter().map(|copy| Spread::between(copy, node));
        (node, apart.max().unwrap_or_default())
    };
    let best = nodes.into_iter().map(with).max_by_key(|(node, apart)| {
        let name = Reverse(node.name.as_str());
        (*apart, Reverse(load(&node.name)), name)
    });
    let (node, apart) = best?;
    (!copies.is_empty() && apart > Spread::of(copies)).then_some(node)
}
