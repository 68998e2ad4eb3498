//! Which rank holds which bytes of which tensor, and where in its buffer.
//!
//! ```text
//!  replicated        rank 0 |t0|t1|t2|          rank 1 |t0|t1|t2|
//!  data-parallel     rank 0 |t0|t1 ..           rank 1 .. |t2|       cuts of the flat buffer
//!  tensor-parallel   rank 0 |t0 left|t1 top|t2| rank 1 |t0 right|t1 bottom|t2|
//! ```
//! Tensors lie in the order of the list, each rank's parts packed without gaps. Layouts combine:
//! eight tensor-parallel ranks, each [`Layout::sharded`] over eight more, are 64 ranks.
mod error;

pub use error::LayoutError;

use super::manifest::TensorSpec;
use super::rect::Rect;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// A part of one tensor in a rank's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Its place in the list of tensors.
    pub tensor: usize,
    /// Which bytes of the tensor.
    pub rect: Rect,
}

/// How a tensor is cut among tensor-parallel ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Split {
    /// Every rank has all of it.
    Whole,
    /// Cut along a dimension: 0 gives rows, 1 columns.
    Along {
        /// Which dimension.
        dim: usize,
        /// Where each part begins, and the end: `cuts[0] = 0`, ascending, last = the dimension's
        /// size. Fewer parts than ranks: neighbours hold the same one, as key-value heads do.
        cuts: Vec<u64>,
    },
}

/// Tensors and who holds which of their bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    tensors: Arc<[TensorSpec]>,
    ranks: Vec<Vec<Piece>>,
    grain: u64,
}

impl Layout {
    /// Parts given one by one, each rank's in the order of its buffer.
    pub fn custom(tensors: &[TensorSpec], ranks: Vec<Vec<Piece>>) -> Result<Self, LayoutError> {
        check(tensors)?;
        if ranks.is_empty() {
            return Err(LayoutError::NoRanks);
        }
        let packed = |(rank, pieces): (usize, Vec<Piece>)| pack(tensors, rank, pieces);
        Ok(Self {
            tensors: tensors.into(),
            ranks: ranks
                .into_iter()
                .enumerate()
                .map(packed)
                .collect::<Result<_, _>>()?,
            grain: 1,
        })
    }

    /// Every rank holds every tensor.
    pub fn replicated(tensors: &[TensorSpec], ranks: usize) -> Result<Self, LayoutError> {
        Self::custom(tensors, vec![whole(tensors); ranks])
    }

    /// Rank `i` holds the bytes `cuts[i]..cuts[i + 1]` of the flat buffer, wherever that cuts a
    /// tensor.
    pub fn flat(tensors: &[TensorSpec], cuts: &[u64]) -> Result<Self, LayoutError> {
        let total = check(tensors)?;
        check_cuts("the flat buffer", cuts, total)?;
        let shards: Vec<_> = cuts.windows(2).map(|w| w[0]..w[1]).collect();
        Self::held(tensors, &shards)
    }

    /// Each rank holds its range of the flat buffer, as a version's
    /// [`Manifest`](super::Manifest::shards) says.
    pub fn held(tensors: &[TensorSpec], shards: &[Range<u64>]) -> Result<Self, LayoutError> {
        let one = Self::replicated(tensors, 1)?;
        let shards = shards.iter().map(|s| one.shard(0, s.start, s.end));
        Self::custom(tensors, shards.collect())
    }

    /// Flat shards of almost equal size whose cuts are multiples of `grain`.
    pub fn data_parallel(
        tensors: &[TensorSpec],
        ranks: usize,
        grain: u64,
    ) -> Result<Self, LayoutError> {
        let total = check(tensors)?;
        Self::flat(tensors, &even_cuts(total, ranks, grain))
    }

    /// Every tensor is cut among the ranks as `split` says.
    pub fn tensor_parallel(
        tensors: &[TensorSpec],
        ranks: usize,
        split: impl Fn(&TensorSpec) -> Split,
    ) -> Result<Self, LayoutError> {
        check(tensors)?;
        let mut held = vec![Vec::new(); ranks];
        for (tensor, spec) in tensors.iter().enumerate() {
            let rects = part_of(spec, &split(spec))?;
            if rects.len() > ranks {
                let (name, parts) = (spec.name.clone(), rects.len());
                return Err(LayoutError::Parts { name, parts, ranks });
            }
            for (rank, pieces) in held.iter_mut().enumerate() {
                let rect = rects[rank * rects.len() / ranks];
                pieces.push(Piece { tensor, rect });
            }
        }
        Self::custom(tensors, held)
    }

    /// Each rank's buffer cut into almost equal flat shards for `ways` ranks: rank `r` becomes the
    /// ranks `r * ways ..`.
    pub fn sharded(&self, ways: usize) -> Result<Self, LayoutError> {
        let shards = (0..self.ranks.len()).flat_map(|rank| {
            let cuts = even_cuts(self.bytes(rank), ways, self.grain);
            let shards = cuts.windows(2).map(|w| self.shard(rank, w[0], w[1]));
            shards.collect::<Vec<_>>()
        });
        Ok(Self::custom(&self.tensors, shards.collect())?.cut_at(self.grain))
    }

    /// All ranks `copies` times: rank `r` is also `r + ranks`, and so on.
    pub fn copied(&self, copies: usize) -> Result<Self, LayoutError> {
        let ranks = self.ranks.iter().cycle().take(self.ranks.len() * copies);
        Ok(Self::custom(&self.tensors, ranks.cloned().collect())?.cut_at(self.grain))
    }

    /// As a target: bytes that several sources hold are divided among them at multiples of `bytes`
    /// in the target's buffer, so that a chunk of that size comes from one source.
    #[must_use]
    pub fn cut_at(mut self, bytes: u64) -> Self {
        self.grain = bytes.max(1);
        self
    }

    /// Where holders of the same bytes are divided.
    pub fn grain(&self) -> u64 {
        self.grain
    }

    /// The tensors.
    pub fn tensors(&self) -> &[TensorSpec] {
        &self.tensors
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.ranks.len()
    }

    /// A rank's parts in the order of its buffer.
    pub fn pieces(&self, rank: usize) -> &[Piece] {
        self.ranks.get(rank).map_or(&[], Vec::as_slice)
    }

    /// Size of a rank's buffer.
    pub fn bytes(&self, rank: usize) -> u64 {
        self.pieces(rank).iter().map(|p| p.rect.bytes()).sum()
    }

    /// Names the layout: blake3 (context `robust layout v1`) over grain, tensors and parts.
    pub fn digest(&self) -> [u8; 32] {
        let mut words = vec![self.grain, self.tensors.len() as u64];
        let mut hasher = blake3::Hasher::new_derive_key("robust layout v1");
        for tensor in self.tensors.iter() {
            for text in [&tensor.name, &tensor.dtype] {
                words.push(text.len() as u64);
                words.extend(text.bytes().map(u64::from));
            }
            words.push(tensor.shape.len() as u64);
            words.extend(&tensor.shape);
        }
        for pieces in &self.ranks {
            words.push(pieces.len() as u64);
            for Piece { tensor, rect } in pieces {
                let (row, col) = (rect.first_row, rect.first_col);
                let part = [
                    *tensor as u64,
                    rect.row_bytes,
                    row,
                    rect.rows,
                    col,
                    rect.width,
                ];
                words.extend(part);
            }
        }
        for word in words {
            hasher.update(&word.to_le_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    /// What a rank holds between two places of its buffer.
    fn shard(&self, rank: usize, from: u64, to: u64) -> Vec<Piece> {
        let (mut at, mut held) = (0, Vec::new());
        for Piece { tensor, rect } in self.pieces(rank) {
            let end = at + rect.bytes();
            let (lo, hi) = (from.max(at) - at, to.min(end).max(at) - at);
            if lo < hi {
                let part = |rect| Piece {
                    tensor: *tensor,
                    rect,
                };
                held.extend(rect.packed(lo, hi).into_iter().map(part));
            }
            at = end;
        }
        held
    }
}

/// `parts + 1` places that cut `size` into almost equal parts at multiples of `grain`.
pub fn even_cuts(size: u64, parts: usize, grain: u64) -> Vec<u64> {
    let (grain, parts) = (grain.max(1), parts as u64);
    let grains = u128::from(size.div_ceil(grain));
    let cut = |at: u64| {
        let place = grains * u128::from(at) / u128::from(parts.max(1));
        u64::try_from(place)
            .unwrap_or(u64::MAX)
            .saturating_mul(grain)
            .min(size)
    };
    (0..=parts).map(cut).collect()
}

fn whole(tensors: &[TensorSpec]) -> Vec<Piece> {
    let piece = |(tensor, spec): (usize, &TensorSpec)| Piece {
        tensor,
        rect: Rect::flat(spec.bytes, 0, spec.bytes),
    };
    tensors.iter().enumerate().map(piece).collect()
}

/// Refuses tensors that cannot be, or not together; else says how many bytes they have.
fn check(tensors: &[TensorSpec]) -> Result<u64, LayoutError> {
    let (mut names, mut total) = (BTreeSet::new(), 0_u64);
    for spec in tensors {
        let sum = total.checked_add(spec.bytes);
        let right = spec.size() == Some(spec.bytes) && names.insert(spec.name.as_str());
        if let Some(sum) = sum.filter(|_| right) {
            total = sum;
        } else {
            return Err(LayoutError::Tensor {
                name: spec.name.clone(),
                dtype: spec.dtype.clone(),
                shape: spec.shape.clone(),
                bytes: spec.bytes,
            });
        }
    }
    Ok(total)
}

fn check_cuts(what: &str, cuts: &[u64], end: u64) -> Result<(), LayoutError> {
    let ascend = cuts.windows(2).all(|w| w[0] <= w[1]);
    if ascend && cuts.len() > 1 && cuts.first() == Some(&0) && cuts.last() == Some(&end) {
        return Ok(());
    }
    let (what, cuts) = (what.to_owned(), cuts.to_vec());
    Err(LayoutError::Cuts { what, cuts, end })
}

/// A rank's parts in their normal form, without empty ones.
fn pack(
    tensors: &[TensorSpec],
    rank: usize,
    pieces: Vec<Piece>,
) -> Result<Vec<Piece>, LayoutError> {
    let mut packed = Vec::with_capacity(pieces.len());
    for Piece { tensor, rect } in pieces {
        let total = tensors.get(tensor).map(|spec| spec.bytes);
        let Some(total) = total.filter(|&total| rect.fits(total)) else {
            return Err(LayoutError::Outside { rank, tensor });
        };
        if rect.bytes() > 0 {
            packed.push(Piece {
                tensor,
                rect: rect.normal(total),
            });
        }
    }
    Ok(packed)
}

/// The parts of a tensor, in order.
fn part_of(spec: &TensorSpec, split: &Split) -> Result<Vec<Rect>, LayoutError> {
    let Split::Along { dim, cuts } = split else {
        return Ok(vec![Rect::flat(spec.bytes, 0, spec.bytes)]);
    };
    let Some(&size) = spec.shape.get(*dim) else {
        let (name, dim) = (spec.name.clone(), *dim);
        return Err(LayoutError::Dimension { name, dim });
    };
    check_cuts(&format!("tensor `{}`", spec.name), cuts, size)?;
    let rows: u64 = spec.shape[..*dim].iter().product();
    let row_bytes = spec.bytes / rows.max(1);
    let unit = row_bytes / size.max(1);
    let rect = |w: &[u64]| Rect {
        row_bytes,
        first_row: 0,
        rows,
        first_col: w[0] * unit,
        width: (w[1] - w[0]) * unit,
    };
    Ok(cuts.windows(2).map(rect).collect())
}
