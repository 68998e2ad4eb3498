//! How one chunk is made from what it was in another version.
//!
//! ```text
//!   zstd of:  gaps u32 │ diffs u32 │ gaps, a byte each │ diffs, a byte each │ wide, two bytes each
//! ```
//! A chunk is words of two bytes, the size of a bfloat16. For every word that differs there is a gap,
//! the words since the last one that did (255: 255 words and no change yet), and a diff, new minus old
//! as a signed byte; -128 stands for one that no byte holds, and its new value is next among the wide.
//! An RL step moves most of the words that it changes by one, so the diffs are nearly all +1 and -1, and
//! zstd (level 1) leaves little of them: of steps that change 1.4 % of the words, patches have 0.9 % of
//! the bytes (1.4 % without zstd, 1.9 % as zstd of new XOR old, which is also four times as slow), and
//! where 21 % change 9.5 % (21 %, 17 %).
use std::io;

use zstd::bulk::{Compressor, Decompressor};

/// More than this does not pay: it is the fastest.
const LEVEL: i32 = 1;
/// As many words, and no change after them.
const FAR: u8 = 255;
/// The new value is among the wide.
const WIDE: i8 = -128;
/// Bytes before the gaps.
const HEAD: usize = 8;
/// Words that are compared at once: a cache line of them, and the bits of a number.
const BLOCK: usize = 32;

/// Makes patches; keeps its memory from chunk to chunk.
pub(super) struct Encoder {
    gaps: Vec<u8>,
    diffs: Vec<u8>,
    wide: Vec<u8>,
    plain: Vec<u8>,
    packed: Vec<u8>,
    zstd: Compressor<'static>,
}

impl Encoder {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            gaps: Vec::new(),
            diffs: Vec::new(),
            wide: Vec::new(),
            plain: Vec::new(),
            packed: Vec::new(),
            zstd: Compressor::new(LEVEL)?,
        })
    }

    /// What makes `new` of `old`, and how many words differ; none where that is not much shorter,
    /// or is not whole words of the same number.
    pub fn encode(&mut self, old: &[u8], new: &[u8]) -> Option<(&[u8], u64)> {
        if old.len() != new.len() || !old.len().is_multiple_of(2) {
            return None;
        }
        self.scan(old, new)?;
        let head = [self.gaps.len(), self.diffs.len()];
        self.plain.clear();
        for len in head {
            self.plain.extend(u32::try_from(len).ok()?.to_le_bytes());
        }
        for stream in [&self.gaps, &self.diffs, &self.wide] {
            self.plain.extend(stream);
        }
        self.packed.clear();
        self.packed
            .reserve(zstd::zstd_safe::compress_bound(self.plain.len()));
        let packed = self.zstd.compress_to_buffer(&self.plain, &mut self.packed);
        packed.ok()?;
        let words = self.diffs.len() as u64;
        // Else what is saved is not worth the work.
        (self.packed.len() < new.len() / 4 * 3).then_some((&self.packed, words))
    }

    /// Fills the streams; none where half of the words have nothing to do with what they were.
    fn scan(&mut self, old: &[u8], new: &[u8]) -> Option<()> {
        for stream in [&mut self.gaps, &mut self.diffs, &mut self.wide] {
            stream.clear();
        }
        let most = old.len() / 2;
        let (old_words, _) = old.as_chunks::<2>();
        let (new_words, _) = new.as_chunks::<2>();
        let (old_blocks, old_rest) = old_words.as_chunks::<BLOCK>();
        let (new_blocks, new_rest) = new_words.as_chunks::<BLOCK>();
        let mut next = 0;
        for (at, (old, new)) in old_blocks.iter().zip(new_blocks).enumerate() {
            if old == new {
                continue;
            }
            // First which ones, without a branch for each word; of most blocks it is one or none.
            let mut changed = 0_u32;
            for word in 0..BLOCK {
                changed |= u32::from(old[word] != new[word]) << word;
            }
            while changed != 0 {
                let word = changed.trailing_zeros() as usize % BLOCK;
                changed &= changed - 1;
                self.change(at * BLOCK + word, &mut next, old[word], new[word]);
            }
            if self.wide.len() > most {
                return None;
            }
        }
        let first = old_blocks.len() * BLOCK;
        for (at, (old, new)) in old_rest.iter().zip(new_rest).enumerate() {
            if old != new {
                self.change(first + at, &mut next, *old, *new);
            }
        }
        (self.wide.len() <= most).then_some(())
    }

    fn change(&mut self, word: usize, next: &mut usize, old: [u8; 2], new: [u8; 2]) {
        let mut gap = word - *next;
        *next = word + 1;
        while gap >= usize::from(FAR) {
            self.gaps.push(FAR);
            gap -= usize::from(FAR);
        }
        self.gaps.push(gap as u8);
        let diff = u16::from_le_bytes(new).wrapping_sub(u16::from_le_bytes(old));
        match i8::try_from(diff.cast_signed()) {
            Ok(diff) if diff != WIDE => self.diffs.push(diff.cast_unsigned()),
            _ => {
                self.diffs.push(WIDE.cast_unsigned());
                self.wide.extend(new);
            }
        }
    }
}

/// Why a patch cannot be applied. Whoever made it had other bytes, or other rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoPatch(&'static str);

/// Applies patches; keeps its memory from chunk to chunk.
pub(super) struct Decoder {
    plain: Vec<u8>,
    zstd: Decompressor<'static>,
}

impl Decoder {
    pub fn new() -> io::Result<Self> {
        let (plain, zstd) = (Vec::new(), Decompressor::new()?);
        Ok(Self { plain, zstd })
    }

    /// Makes the new bytes of the old ones, which are spoilt after an error. What comes of a wrong patch
    /// is for the digest to find.
    pub fn apply(&mut self, patch: &[u8], chunk: &mut [u8]) -> Result<(), NoPatch> {
        self.plain.clear();
        // A gap, a diff and a new value for every word, whatever a patch says of itself.
        self.plain.reserve(HEAD + chunk.len() * 2);
        let unpacked = self.zstd.decompress_to_buffer(patch, &mut self.plain);
        unpacked.map_err(|_| NoPatch("it is not what zstd makes"))?;
        let short = NoPatch("it is cut short");
        let (head, streams) = self.plain.split_at_checked(HEAD).ok_or(short.clone())?;
        let len = |at: usize| {
            let bytes = head.get(at..at + 4)?.try_into().ok()?;
            usize::try_from(u32::from_le_bytes(bytes)).ok()
        };
        let (gaps, diffs) = len(0).zip(len(4)).ok_or(short.clone())?;
        let (gaps, streams) = streams.split_at_checked(gaps).ok_or(short.clone())?;
        let (diffs, wide) = streams.split_at_checked(diffs).ok_or(short.clone())?;
        let (wide, _) = wide.as_chunks::<2>();
        let (words, _) = chunk.as_chunks_mut::<2>();
        let (mut diffs, mut wide, mut next) = (diffs.iter(), wide.iter(), 0);
        for &gap in gaps {
            next += usize::from(gap);
            if gap == FAR {
                continue;
            }
            let beyond = NoPatch("it goes beyond its chunk");
            let word = words.get_mut(next).ok_or(beyond)?;
            next += 1;
            *word = match diffs.next().ok_or(short.clone())?.cast_signed() {
                WIDE => *wide.next().ok_or(short.clone())?,
                diff => {
                    let old = u16::from_le_bytes(*word);
                    old.wrapping_add_signed(diff.into()).to_le_bytes()
                }
            };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn patched(old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
        let mut encoder = Encoder::new().unwrap();
        let patch = encoder.encode(old, new)?.0.to_vec();
        let mut chunk = old.to_vec();
        Decoder::new().unwrap().apply(&patch, &mut chunk).unwrap();
        Some(chunk)
    }

    #[test]
    fn a_patch_that_changes_nothing_is_one() {
        let chunk = vec![7; 1000];
        assert_eq!(patched(&chunk, &chunk).unwrap(), chunk);
    }

    #[test]
    fn every_distance_and_every_difference_comes_back() {
        let words = 70_000;
        let old: Vec<u8> = (0..words)
            .flat_map(|w: u32| (w as u16).to_le_bytes())
            .collect();
        let mut new = old.clone();
        let mut word = 0;
        for distance in [1, 2, 254, 255, 256, 509, 510, 511, 1000, 30_000] {
            word += distance;
            for (at, change) in [1, -1, 127, -127, 128, -128, 129, i16::MIN, 5000]
                .into_iter()
                .enumerate()
            {
                let at = (word + at) * 2;
                let was = u16::from_le_bytes([new[at], new[at + 1]]);
                let is = was.wrapping_add_signed(change).to_le_bytes();
                new[at..at + 2].copy_from_slice(&is);
            }
            word += 9;
        }
        assert_eq!(patched(&old, &new).unwrap(), new);
    }

    #[test]
    fn what_is_no_shorter_than_the_chunk_is_no_patch() {
        let noise = |seed: u64| -> Vec<u8> {
            let next = |state: &mut u64| {
                *state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                Some((*state >> 56) as u8)
            };
            std::iter::repeat_with({
                let mut state = seed;
                move || next(&mut state).unwrap_or_default()
            })
            .take(10_000)
            .collect()
        };
        assert_eq!(patched(&noise(1), &noise(2)), None);
        assert_eq!(patched(&[1, 2], &[3, 4]), None);
        assert_eq!(patched(&[1, 2, 3], &[1, 2, 4]), None, "half a word");
        assert_eq!(patched(&[0; 100], &[0; 102]), None, "of another length");
    }

    #[test]
    fn a_damaged_patch_is_an_error_or_other_bytes_and_never_a_panic() {
        let old = vec![0; 5000];
        let mut new = old.clone();
        (0..5000).step_by(34).for_each(|at| new[at] = 1);
        let patch = Encoder::new()
            .unwrap()
            .encode(&old, &new)
            .unwrap()
            .0
            .to_vec();
        let mut decoder = Decoder::new().unwrap();
        for at in 0..patch.len() {
            for damage in [1, 0x80, 0xFF] {
                let mut damaged = patch.clone();
                damaged[at] ^= damage;
                let _ = decoder.apply(&damaged, &mut old.clone());
                let _ = decoder.apply(&damaged[..at], &mut old.clone());
            }
        }
        // One that is longer than its chunk when unpacked.
        let bomb = zstd::bulk::compress(&vec![FAR; 1 << 20], LEVEL).unwrap();
        assert!(decoder.apply(&bomb, &mut old.clone()).is_err());
    }

    proptest! {
        #[test]
        fn what_was_changed_anyhow_comes_back(
            old in proptest::collection::vec(any::<u8>(), 0..4000),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..60),
        ) {
            let old = &old[..old.len() / 2 * 2];
            let mut new = old.to_vec();
            for (at, value) in changes.into_iter().filter(|_| !old.is_empty()) {
                new[at.index(old.len())] = value;
            }
            if let Some(made) = patched(old, &new) {
                prop_assert_eq!(made, new);
            } else {
                prop_assert!(old.len() < 800, "a patch of sixty words is shorter than that");
            }
        }

        #[test]
        fn nothing_that_a_patch_may_say_harms(
            plain in proptest::collection::vec(any::<u8>(), 0..300),
            words in 0_usize..200,
        ) {
            let patch = zstd::bulk::compress(&plain, LEVEL).unwrap();
            let _ = Decoder::new().unwrap().apply(&patch, &mut vec![0; words * 2]);
        }
    }
}
