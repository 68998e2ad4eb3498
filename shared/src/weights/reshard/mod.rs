//! Which bytes go from which source rank to which target rank, from any layout to any other.
//!
//! ```text
//!  source ranks ── pieces that are alike ──► atoms: disjoint, each with its holders
//!  target piece ── shared with each atom ──► claims ── one holder each ──► runs per pair of ranks
//! ```
//! Rules that the property tests hold:
//! - R-1 Every byte of every target rank is written exactly once, with that byte of that tensor.
//! - R-2 Holders of the same bytes share the work: whoever sends least so far sends more, those with
//!   the fewest alternatives first, so that all ranks of a trainer send at once.
//! - R-3 Bytes that several hold are divided at multiples of the target's grain (its chunks), or
//!   between rows that are shorter than it.
//!
//! A plan is pure and depends on the two layouts alone; [`PlanCache`] keeps the last ones.
mod index;
mod share;

use super::layout::Layout;
use super::manifest::TensorSpec;
use super::rect::Shared;
use index::Index;
use share::Shares;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that go from a source rank's buffer to a target rank's: `count` pieces at strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First byte in the source's buffer.
    pub src: u64,
    /// First byte in the target's buffer.
    pub dst: u64,
    /// Bytes of a piece.
    pub len: u64,
    /// Pieces.
    pub count: u64,
    /// Bytes from a piece to the next in the source's buffer.
    pub src_stride: u64,
    /// Bytes from a piece to the next in the target's buffer.
    pub dst_stride: u64,
}

/// One contiguous piece of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte in the source's buffer.
    pub src: u64,
    /// First byte in the target's buffer.
    pub dst: u64,
    /// Bytes.
    pub len: u64,
}

/// Why there is no plan from one layout to another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReshardError {
    /// The target wants a tensor that the source does not have.
    #[error("the source has no tensor `{name}`")]
    NoTensor {
        /// The tensor.
        name: String,
    },
    /// The two do not mean the same tensor.
    #[error("tensor `{name}` is {target} in the target, {source_has} in the source")]
    Differs {
        /// The tensor.
        name: String,
        /// The target's type and shape.
        target: String,
        /// The source's.
        source_has: String,
    },
    /// Bytes that no source rank holds.
    #[error("of tensor `{name}` no source rank holds {bytes} bytes that target rank {rank} needs")]
    NotHeld {
        /// The tensor.
        name: String,
        /// The target rank.
        rank: usize,
        /// How many.
        bytes: u64,
    },
}

/// Who sends what to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReshardPlan {
    sources: usize,
    /// By target rank, then source rank; each by the place in the target's buffer.
    pairs: Vec<Vec<Vec<Run>>>,
}

impl Run {
    /// Bytes of all its pieces.
    pub fn bytes(&self) -> u64 {
        self.len * self.count
    }

    /// Its pieces in order.
    pub fn parts(self) -> impl Iterator<Item = Part> {
        (0..self.count).map(move |at| Part {
            src: self.src + at * self.src_stride,
            dst: self.dst + at * self.dst_stride,
            len: self.len,
        })
    }

    /// Pieces without gaps between them on both sides are one.
    fn joined(self) -> Self {
        let tight = self.count == 1 || (self.src_stride, self.dst_stride) == (self.len, self.len);
        match tight {
            true => Self::flat(self.src, self.dst, self.bytes()),
            false => self,
        }
    }

    fn flat(src: u64, dst: u64, len: u64) -> Self {
        Self {
            src,
            dst,
            len,
            count: 1,
            src_stride: len,
            dst_stride: len,
        }
    }

    /// Makes itself longer by what follows it on both sides.
    fn extend(&mut self, next: &Self) -> bool {
        let after = (self.src + self.len, self.dst + self.len) == (next.src, next.dst);
        let follows = after && (self.count, next.count) == (1, 1);
        if follows {
            *self = Self::flat(self.src, self.dst, self.len + next.len);
        }
        follows
    }
}

impl ReshardPlan {
    /// The plan from one layout to another. All target ranks are thought of as pulling at the same
    /// time: the work is even over all of them together.
    pub fn between(from: &Layout, to: &Layout) -> Result<Self, ReshardError> {
        let index = Index::new(from);
        let places = matched(from.tensors(), to.tensors())?;
        let mut shares = Shares::new(&index, from.ranks(), to.ranks(), to.grain());
        for rank in 0..to.ranks() {
            let mut base = 0;
            for piece in to.pieces(rank) {
                let (tensor, mut held) = (places[piece.tensor], 0);
                for (at, atom) in index.near(tensor, &piece.rect) {
                    for part in atom.rect.shared(&piece.rect) {
                        held += part.len * part.count;
                        shares.claim(rank, (tensor, at), run(&part, base));
                    }
                }
                if held != piece.rect.bytes() {
                    let name = to.tensors()[piece.tensor].name.clone();
                    let bytes = piece.rect.bytes() - held;
                    return Err(ReshardError::NotHeld { name, rank, bytes });
                }
                base += piece.rect.bytes();
            }
        }
        let (sources, pairs) = (from.ranks(), shares.divide());
        Ok(Self { sources, pairs })
    }

    /// Source ranks.
    pub fn sources(&self) -> usize {
        self.sources
    }

    /// Target ranks.
    pub fn targets(&self) -> usize {
        self.pairs.len()
    }

    /// What a source rank sends to a target rank, by the place in the target's buffer.
    pub fn runs(&self, source: usize, target: usize) -> &[Run] {
        let runs = self.pairs.get(target).and_then(|from| from.get(source));
        runs.map_or(&[], Vec::as_slice)
    }

    /// The same, piece by piece.
    pub fn parts(&self, source: usize, target: usize) -> impl Iterator<Item = Part> {
        self.runs(source, target).iter().flat_map(|run| run.parts())
    }

    /// Where in a target rank's buffer its sources begin to write, ascending: a relay that is filled by
    /// this plan has the bytes from there on first.
    pub fn frontiers(&self, target: usize) -> Vec<u64> {
        let sources = self.pairs.get(target).map_or(&[][..], Vec::as_slice);
        let first = sources.iter().filter_map(|runs| Some(runs.first()?.dst));
        let mut places: Vec<_> = first.collect();
        places.sort_unstable();
        places
    }

    /// Bytes that a source rank sends to a target rank.
    pub fn bytes(&self, source: usize, target: usize) -> u64 {
        self.runs(source, target).iter().map(Run::bytes).sum()
    }
}

/// A part shared with an atom as a run from the atom's packed bytes to the target's buffer.
fn run(part: &Shared, base: u64) -> Run {
    let run = Run {
        src: part.one,
        dst: base + part.other,
        len: part.len,
        count: part.count,
        src_stride: part.one_stride,
        dst_stride: part.other_stride,
    };
    run.joined()
}

/// For each of the target's tensors its place in the source's list.
fn matched(from: &[TensorSpec], to: &[TensorSpec]) -> Result<Vec<usize>, ReshardError> {
    let places = from.iter().enumerate();
    let places: BTreeMap<_, _> = places.map(|(at, spec)| (spec.name.as_str(), at)).collect();
    let place = |spec: &TensorSpec| {
        let name = spec.name.clone();
        let Some(&at) = places.get(spec.name.as_str()) else {
            return Err(ReshardError::NoTensor { name });
        };
        if (&from[at].dtype, &from[at].shape) != (&spec.dtype, &spec.shape) {
            let of = |spec: &TensorSpec| format!("{} {:?}", spec.dtype, spec.shape);
            let (target, source_has) = (of(spec), of(&from[at]));
            return Err(ReshardError::Differs {
                name,
                target,
                source_has,
            });
        }
        Ok(at)
    };
    to.iter().map(place).collect()
}

/// The plans last asked for: layouts change when a role's shape does, pulls are many.
#[derive(Debug, Default)]
pub struct PlanCache {
    /// The most recently used last.
    plans: Vec<([u8; 32], [u8; 32], Arc<ReshardPlan>)>,
}

impl PlanCache {
    /// Pairs of layouts that are kept.
    pub const MOST: usize = 8;

    /// The plan between two layouts, made if it is not kept.
    pub fn plan(&mut self, from: &Layout, to: &Layout) -> Result<Arc<ReshardPlan>, ReshardError> {
        let (a, b) = (from.digest(), to.digest());
        let kept = self.plans.iter().position(|(x, y, _)| (x, y) == (&a, &b));
        let entry = match kept {
            Some(at) => self.plans.remove(at),
            None => (a, b, Arc::new(ReshardPlan::between(from, to)?)),
        };
        if self.plans.len() >= Self::MOST {
            self.plans.remove(0);
        }
        let plan = Arc::clone(&entry.2);
        self.plans.push(entry);
        Ok(plan)
    }
}

#[cfg(test)]
mod tests;
