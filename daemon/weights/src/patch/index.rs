//! Where a version's patches lie.
//!
//! ```text
//!   xxh3 of the rest u64 │ words changed u64 │ key of the patches, RegionKey::BYTES │ a u32 for each chunk
//! ```
//! All numbers little-endian. A chunk's number is the length of its patch; 0: the chunk did not change;
//! all ones: it did, and has no patch, so it comes whole. The patches lie one after the other in the order
//! of their chunks, in a region of their own, since only who has made them knows how long it must be. Where
//! there is none at all the key is zeros.
use std::ops::Range;

use robust_transport::RegionKey;
use xxhash_rust::xxh3::xxh3_64;

const DIGEST: usize = 8;
const LENGTHS: usize = DIGEST + 8 + RegionKey::BYTES;

/// A chunk that changed and has no patch.
pub(super) const WHOLE: u32 = u32::MAX;

/// The same for the holder of a version's patches and for all who read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Index {
    /// Words of two bytes that differ from the version before, in all chunks that have a patch.
    pub changed: u64,
    /// Length of each chunk's patch; 0 and [`WHOLE`]: it has none.
    pub lengths: Vec<u32>,
}

impl Index {
    /// Bytes of the index of a version of so many chunks.
    pub fn bytes(chunks: usize) -> usize {
        LENGTHS + chunks * 4
    }

    /// As its holder exposes it, with the key of his patches.
    pub fn to_bytes(&self, key: Option<&RegionKey>) -> Vec<u8> {
        let mut rest = self.changed.to_le_bytes().to_vec();
        match key {
            Some(key) => rest.extend(key.to_bytes()),
            None => rest.extend([0; RegionKey::BYTES]),
        }
        for length in &self.lengths {
            rest.extend(length.to_le_bytes());
        }
        let mut bytes = xxh3_64(&rest).to_le_bytes().to_vec();
        bytes.extend(rest);
        bytes
    }

    /// What [`Index::to_bytes`] wrote, and the key; none for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Option<(Self, Option<RegionKey>)> {
        let (digest, rest) = bytes.split_at_checked(DIGEST)?;
        if xxh3_64(rest).to_le_bytes() != *digest {
            return None;
        }
        let (changed, rest) = rest.split_first_chunk()?;
        let (key, lengths) = rest.split_at_checked(RegionKey::BYTES)?;
        let (lengths, []) = lengths.as_chunks() else {
            return None;
        };
        let index = Self {
            changed: u64::from_le_bytes(*changed),
            lengths: lengths
                .iter()
                .map(|length| u32::from_le_bytes(*length))
                .collect(),
        };
        let key = RegionKey::from_bytes(key).ok();
        let right = match &key {
            Some(key) => key.len == index.total(),
            None => index.total() == 0,
        };
        right.then_some((index, key))
    }

    /// Bytes of all patches.
    pub fn total(&self) -> u64 {
        self.lengths.iter().map(|&length| bytes(length)).sum()
    }

    /// Where each chunk's patch lies, of those that have one.
    pub fn patches(&self) -> impl Iterator<Item = (u64, Range<u64>)> {
        let place = |end: &mut u64, &length: &u32| {
            let start = *end;
            *end += bytes(length);
            Some(start..*end)
        };
        let all = (0..).zip(self.lengths.iter().scan(0, place));
        all.filter(|(_, patch)| !patch.is_empty())
    }
}

/// Bytes of a patch of this length.
fn bytes(length: u32) -> u64 {
    match length {
        WHOLE => 0,
        length => length.into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_index_comes_back_with_its_key_and_a_damaged_one_does_not() {
        let (changed, lengths) = (9, vec![0, 7, WHOLE, 30]);
        let index = Index { changed, lengths };
        let (owner, region, len) = (1, 2, 37);
        let key = RegionKey { owner, region, len };
        let bytes = index.to_bytes(Some(&key));
        assert_eq!(bytes.len(), Index::bytes(4));
        assert_eq!(
            Index::from_bytes(&bytes).unwrap(),
            (index.clone(), Some(key))
        );
        assert_eq!(index.patches().collect::<Vec<_>>(), [(1, 0..7), (3, 7..37)]);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(Index::from_bytes(&damaged), None);
            assert_eq!(Index::from_bytes(&bytes[..at]), None);
        }
        let short = RegionKey { len: 36, ..key };
        assert_eq!(Index::from_bytes(&index.to_bytes(Some(&short))), None);
        assert_eq!(Index::from_bytes(&index.to_bytes(None)), None);
    }
}
