//! Applies patches.
use std::io;

use zstd::bulk::Decompressor;

use super::{FAR, HEAD, STREAMS};

/// Why a patch cannot be applied. Whoever made it had other bytes, or other rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct NoPatch(&'static str);

const SHORT: NoPatch = NoPatch("it is cut short");

/// Applies patches; keeps its memory from chunk to chunk.
pub(crate) struct Decoder {
    streams: [Vec<u8>; STREAMS],
    places: Vec<u32>,
    diffs: Vec<[u16; 64]>,
    zstd: Decompressor<'static>,
}

impl Decoder {
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            streams: Default::default(),
            places: Vec::new(),
            diffs: Vec::new(),
            zstd: Decompressor::new()?,
        })
    }

    /// Makes the new bytes of the old ones, which after an error are as they were. What comes of a wrong
    /// patch is for the digest to find.
    pub fn apply(&mut self, patch: &[u8], chunk: &mut [u8]) -> Result<(), NoPatch> {
        let (words, _) = chunk.as_chunks_mut::<2>();
        self.unpack(patch, words.len())?;
        self.find_places(words.len())?;
        self.find_diffs()?;
        for (&place, &diff) in self.places.iter().zip(self.diffs.as_flattened()) {
            // All of them are within.
            if let Some(word) = words.get_mut(place as usize) {
                *word = u16::from_le_bytes(*word).wrapping_add(diff).to_le_bytes();
            }
        }
        Ok(())
    }

    /// None of a stream is longer than it can be of so many words, whatever a patch says of itself.
    fn unpack(&mut self, patch: &[u8], words: usize) -> Result<(), NoPatch> {
        let (head, mut rest) = patch.split_at_checked(HEAD).ok_or(SHORT)?;
        let bits = words.div_ceil(8);
        let most = [words, bits, bits, words, 2 * words];
        let lengths = head
            .as_chunks()
            .0
            .iter()
            .map(|len| u32::from_le_bytes(*len));
        for ((stream, len), most) in self.streams.iter_mut().zip(lengths).zip(most) {
            let (packed, others) = rest.split_at_checked(len as usize).ok_or(SHORT)?;
            rest = others;
            stream.clear();
            if !packed.is_empty() {
                stream.reserve(most);
                let unpacked = self.zstd.decompress_to_buffer(packed, stream);
                unpacked.map_err(|_| NoPatch("it is not what zstd makes"))?;
            }
        }
        Ok(())
    }

    /// Where the words are that change.
    fn find_places(&mut self, words: usize) -> Result<(), NoPatch> {
        let [gaps, ..] = &self.streams;
        self.places.resize(gaps.len(), 0);
        let (mut count, mut next) = (0, 0);
        for &gap in gaps {
            // Without a branch: one gap in forty is a far one, as good as at random. It names no place, so
            // the next one's is written over it.
            if let Some(place) = self.places.get_mut(count) {
                *place = next + u32::from(gap);
            }
            let here = u32::from(gap != FAR);
            count += here as usize;
            next = next.saturating_add(u32::from(gap) + here);
        }
        self.places.truncate(count);
        if next as usize > words {
            return Err(NoPatch("it goes beyond its chunk"));
        }
        Ok(())
    }

    /// By how much.
    fn find_diffs(&mut self) -> Result<(), NoPatch> {
        let [_, signs, large, sizes, wide] = &self.streams;
        if signs.len() * 8 < self.places.len() {
            return Err(SHORT);
        }
        self.diffs.resize(signs.len().div_ceil(8), [0; 64]);
        let bytes = self.diffs.as_flattened_mut().as_chunks_mut::<8>().0;
        for (diffs, signs) in bytes.iter_mut().zip(signs) {
            for (at, diff) in diffs.iter_mut().enumerate() {
                *diff = 1_u16.wrapping_sub(2 * u16::from(signs >> at & 1));
            }
        }
        let (mut sizes, mut wide) = (sizes.iter(), wide.as_chunks::<2>().0.iter());
        for (diffs, bytes) in self.diffs.iter_mut().zip(large.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            let mut large = u64::from_le_bytes(padded);
            while large != 0 {
                let diff = &mut diffs[large.trailing_zeros() as usize % 64];
                large &= large - 1;
                *diff = match *sizes.next().ok_or(SHORT)? {
                    0 => u16::from_le_bytes(*wide.next().ok_or(SHORT)?),
                    size => diff.wrapping_mul(size.into()),
                };
            }
        }
        Ok(())
    }
}
