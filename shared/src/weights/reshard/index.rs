//! What the sources hold, as disjoint parts with their holders.
use crate::weights::layout::Layout;
use crate::weights::rect::Rect;
use std::collections::BTreeMap;

/// Bytes of a tensor that the same ranks hold.
#[derive(Clone, Debug)]
pub(super) struct Atom {
    pub rect: Rect,
    /// Which set of ranks.
    pub set: usize,
    /// Where each rank of the set has it in its buffer.
    bases: Vec<u64>,
}

/// A part as one rank holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    rect: Rect,
    rank: usize,
    base: u64,
}

#[derive(Debug)]
struct Tensor {
    /// By their first byte.
    atoms: Vec<Atom>,
    /// None has more than one row. There may be many; they end in the order in which they begin.
    flat: bool,
}

/// The atoms of every tensor.
#[derive(Debug, Default)]
pub(super) struct Index {
    tensors: Vec<Tensor>,
    /// Sets of ranks that hold the same; each ascending.
    sets: Vec<Vec<usize>>,
    numbers: BTreeMap<Vec<usize>, usize>,
}

impl Index {
    pub fn new(layout: &Layout) -> Self {
        let mut held = vec![Vec::new(); layout.tensors().len()];
        for rank in 0..layout.ranks() {
            let mut base = 0;
            for piece in layout.pieces(rank) {
                let rect = piece.rect;
                held[piece.tensor].push(Held { rect, rank, base });
                base += rect.bytes();
            }
        }
        let mut index = Self::default();
        for held in held {
            let mut atoms = index.alike(held);
            atoms.sort_unstable_by_key(|atom| atom.rect.start());
            if !disjoint(&atoms) {
                atoms = index.fragments(&atoms);
            }
            let flat = atoms.iter().all(|atom| atom.rect.rows == 1);
            index.tensors.push(Tensor { atoms, flat });
        }
        index
    }

    /// The atoms of a tensor that may share bytes with a rectangle, with their places.
    pub fn near(&self, tensor: usize, rect: &Rect) -> impl Iterator<Item = (usize, &Atom)> {
        let Tensor { atoms, flat } = &self.tensors[tensor];
        let end = atoms.partition_point(|atom| atom.rect.start() < rect.end());
        let first = match flat {
            true => atoms.partition_point(|atom| atom.rect.end() <= rect.start()),
            false => 0,
        };
        let found = atoms.iter().enumerate().take(end).skip(first);
        let start = rect.start();
        found.filter(move |(_, atom)| atom.rect.end() > start)
    }

    pub fn atom(&self, (tensor, at): (usize, usize)) -> &Atom {
        &self.tensors[tensor].atoms[at]
    }

    /// The ranks of a set.
    pub fn ranks(&self, set: usize) -> &[usize] {
        &self.sets[set]
    }

    /// Sets there are.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    fn number(&mut self, ranks: Vec<usize>) -> usize {
        if let Some(&number) = self.numbers.get(&ranks) {
            return number;
        }
        self.sets.push(ranks.clone());
        self.numbers.insert(ranks, self.sets.len() - 1);
        self.sets.len() - 1
    }

    /// Parts that are the same become one with several holders.
    fn alike(&mut self, mut held: Vec<Held>) -> Vec<Atom> {
        held.sort_unstable();
        held.dedup_by_key(|part| (part.rect, part.rank));
        let alike = held.chunk_by(|a, b| a.rect == b.rect);
        let atom = |parts: &[Held]| Atom {
            rect: parts[0].rect,
            set: self.number(parts.iter().map(|p| p.rank).collect()),
            bases: parts.iter().map(|p| p.base).collect(),
        };
        alike.map(atom).collect()
    }

    /// Parts that overlap in any other way are cut at each other's ends, row by row: nobody lays
    /// weights out so, hence no more than correct.
    fn fragments(&mut self, atoms: &[Atom]) -> Vec<Atom> {
        let total = atoms.iter().map(|atom| atom.rect.end()).max();
        let total = total.unwrap_or_default();
        let mut ends = Vec::new();
        for (at, atom) in atoms.iter().enumerate() {
            for row in 0..atom.rect.rows {
                let start = atom.rect.start() + row * atom.rect.row_bytes;
                ends.push((start, at, Some(row * atom.rect.width)));
                ends.push((start + atom.rect.width, at, None));
            }
        }
        ends.sort_unstable();
        let mut open: BTreeMap<usize, (u64, u64)> = BTreeMap::new();
        let mut found = Vec::new();
        for (place, &(from, at, packed)) in ends.iter().enumerate() {
            match packed {
                Some(packed) => open.insert(at, (from, packed)),
                None => open.remove(&at),
            };
            let to = ends.get(place + 1).map_or(from, |next| next.0);
            if from < to && !open.is_empty() {
                let held = open.iter().flat_map(|(&at, &(start, packed))| {
                    let ranks = self.sets[atoms[at].set].iter().copied();
                    let bases = atoms[at].bases.iter();
                    ranks.zip(bases.map(move |b| b + packed + (from - start)))
                });
                let held: BTreeMap<usize, u64> = held.collect();
                found.push(Atom {
                    rect: Rect::flat(total, from, to),
                    set: self.number(held.keys().copied().collect()),
                    bases: held.into_values().collect(),
                });
            }
        }
        found
    }
}

impl Atom {
    /// Where the set's holder at `place` has it.
    pub fn base(&self, place: usize) -> u64 {
        self.bases[place]
    }
}

/// Whether no two share a byte. They are sorted by their first.
fn disjoint(atoms: &[Atom]) -> bool {
    let alone = |(at, atom): (usize, &Atom)| {
        let later = atoms[at + 1..].iter();
        let mut near = later.take_while(|other| other.rect.start() < atom.rect.end());
        near.all(|other| atom.rect.shared(&other.rect).is_empty())
    };
    atoms.iter().enumerate().all(alone)
}
