//! How the parts of a fetch travel: in pieces of bounded size, in order.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::digest::{BLOCK, PartDigest};
use crate::key::Part;
use crate::road::{Landing, PIECE_BYTES, Target};

/// What one read asks for.
pub(super) struct Piece {
    pub part: usize,
    /// Where it lies in the remote region.
    pub src: u64,
    pub len: u64,
    dst: u64,
    /// Where it lies in its part.
    at: u64,
    digest: Arc<Mutex<PartDigest>>,
}

/// Walks the parts piece by piece.
pub(super) struct Cursor {
    parts: Vec<Part>,
    index: usize,
    offset: u64,
    /// Of the part at `index`, if one of its pieces was given out.
    digest: Option<Arc<Mutex<PartDigest>>>,
}

impl Piece {
    /// Where its bytes go: to their place in a buffer, or to a block's start. Bounded by a buffer in
    /// this process, so the numbers fit a usize.
    pub fn target(&self, landing: Landing) -> Target {
        let offset = match landing {
            Landing::Buffer(_) => self.dst as usize,
            Landing::Block(_) => 0,
        };
        Target {
            landing,
            offset,
            len: self.len as usize,
            digest: Arc::clone(&self.digest),
            at: self.at as usize,
        }
    }

    /// Its place in the buffer.
    pub fn range(&self) -> Range<usize> {
        self.dst as usize..(self.dst + self.len) as usize
    }

    /// The digest of the part, if all its pieces came in order.
    pub fn part_digest(&self) -> Option<u64> {
        let digest = self.digest.lock().unwrap_or_else(PoisonError::into_inner);
        digest.finished()
    }
}

/// Of what is left of a part, the next piece: as few as possible, none much shorter than others.
fn piece_len(left: u64) -> u64 {
    let pieces = left.div_ceil(PIECE_BYTES).max(1);
    left.div_ceil(pieces)
        .next_multiple_of(BLOCK as u64)
        .min(left)
}

impl Cursor {
    pub fn new(parts: Vec<Part>) -> Cursor {
        Cursor {
            parts,
            index: 0,
            offset: 0,
            digest: None,
        }
    }

    pub fn has_more(&mut self) -> bool {
        while self.parts.get(self.index).is_some_and(|part| part.len == 0) {
            self.index += 1;
        }
        self.index < self.parts.len()
    }

    pub fn next(&mut self) -> Option<Piece> {
        if !self.has_more() {
            return None;
        }
        let (index, part) = (self.index, self.parts.get(self.index)?);
        let new = || Arc::new(Mutex::new(PartDigest::new(part.len as usize)));
        let digest = Arc::clone(self.digest.get_or_insert_with(new));
        let piece = Piece {
            part: index,
            src: part.src + self.offset,
            len: piece_len(part.len - self.offset),
            dst: part.dst + self.offset,
            at: self.offset,
            digest,
        };
        self.offset += piece.len;
        if self.offset == part.len {
            (self.index, self.offset, self.digest) = (self.index + 1, 0, None);
        }
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_pieces_are_the_parts_in_order_and_as_few_as_possible(
            lens in proptest::collection::vec(0..3 * PIECE_BYTES, 0..9)
        ) {
            let part = |(at, len): (usize, &u64)| Part { src: at as u64, dst: 7, len: *len };
            let parts: Vec<Part> = lens.iter().enumerate().map(part).collect();
            let mut cursor = Cursor::new(parts.clone());
            for (index, part) in parts.iter().enumerate() {
                let (mut at, mut count) = (0, 0);
                while at < part.len {
                    prop_assert!(cursor.has_more());
                    let piece = cursor.next();
                    let told = piece.map(|p| (p.part, p.src, p.dst, p.at, p.len));
                    let len = told.map_or(0, |(.., len)| len);
                    prop_assert_eq!(told, Some((index, part.src + at, part.dst + at, at, len)));
                    prop_assert!(len > 0 && len <= PIECE_BYTES && at + len <= part.len);
                    let last = at + len == part.len;
                    prop_assert!(last || len.is_multiple_of(BLOCK as u64));
                    at += len;
                    count += 1;
                }
                prop_assert_eq!(count, part.len.div_ceil(PIECE_BYTES));
            }
            prop_assert!(cursor.next().is_none());
        }
    }
}
