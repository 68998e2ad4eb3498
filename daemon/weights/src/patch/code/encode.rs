//! Makes patches.
use std::io;

use robust_transport::words::{Block, Word, differing, signs_and_large};
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, Strategy};

use super::{FAR, HEAD, STREAMS};

/// Blocks that are compared before the words that differ in them are taken: they are still in the
/// processor's first cache then.
const AT_ONCE: usize = 8;

/// Makes patches; keeps its memory from chunk to chunk.
pub(crate) struct Encoder {
    changes: Changes,
    gaps: Vec<u8>,
    signs: Vec<u8>,
    large: Vec<u8>,
    sizes: Vec<u8>,
    wide: Vec<u8>,
    patch: Vec<u8>,
    packed: Vec<u8>,
    zstd: Compressor<'static>,
}

impl Encoder {
    pub fn new() -> io::Result<Self> {
        let none = Vec::new;
        Ok(Self {
            changes: Changes::default(),
            gaps: none(),
            signs: none(),
            large: none(),
            sizes: none(),
            wide: none(),
            patch: none(),
            packed: none(),
            zstd: compressor()?,
        })
    }

    /// What makes `new` of `old`, and how many words differ; none where that is not much shorter,
    /// or is not whole words of the same number.
    pub fn encode(&mut self, old: &[u8], new: &[u8]) -> Option<(&[u8], u64)> {
        if old.len() != new.len() || !old.len().is_multiple_of(2) {
            return None;
        }
        self.changes.find(old.as_chunks().0, new.as_chunks().0);
        self.fill_gaps();
        self.fill_planes(old.len())?;
        self.pack(new.len()).ok()?;
        // Else what is saved is not worth the work.
        let pays = self.patch.len() < new.len() / 4 * 3;
        pays.then_some((&self.patch, self.changes.count as u64))
    }

    fn fill_gaps(&mut self) {
        self.gaps.clear();
        let mut next = 0;
        for &place in &self.changes.places[..self.changes.count] {
            let mut gap = place - next;
            next = place + 1;
            while gap >= u32::from(FAR) {
                self.gaps.push(FAR);
                gap -= u32::from(FAR);
            }
            self.gaps.push(gap as u8);
        }
    }

    /// Fills the other streams; none where half of the words of a chunk of so many bytes have nothing to
    /// do with what they were.
    fn fill_planes(&mut self, bytes: usize) -> Option<()> {
        for stream in [
            &mut self.signs,
            &mut self.large,
            &mut self.sizes,
            &mut self.wide,
        ] {
            stream.clear();
        }
        for diffs in self.changes.diffs() {
            let ([mut signs], [mut large]) = ([0], [0]);
            signs_and_large(
                std::slice::from_ref(diffs),
                std::slice::from_mut(&mut signs),
                std::slice::from_mut(&mut large),
            );
            self.signs.extend(signs.to_le_bytes());
            self.large.extend(large.to_le_bytes());
            while large != 0 {
                let diff = diffs[large.trailing_zeros() as usize % diffs.len()];
                large &= large - 1;
                match u8::try_from(i16::from_le_bytes(diff).unsigned_abs()) {
                    Ok(size) => self.sizes.push(size),
                    Err(_) => {
                        self.sizes.push(0);
                        self.wide.extend(diff);
                    }
                }
            }
            if self.wide.len() > bytes / 2 {
                return None;
            }
        }
        let bits = self.changes.count.div_ceil(8);
        self.signs.truncate(bits);
        self.large.truncate(bits);
        if self.sizes.is_empty() {
            self.large.clear();
        }
        Some(())
    }

    /// Makes the patch of the streams of a chunk of so many bytes.
    fn pack(&mut self, bytes: usize) -> io::Result<()> {
        self.patch.clear();
        self.patch.resize(HEAD, 0);
        self.packed
            .reserve(zstd::zstd_safe::compress_bound(bytes.max(64)));
        let streams: [&Vec<u8>; STREAMS] = [
            &self.gaps,
            &self.signs,
            &self.large,
            &self.sizes,
            &self.wide,
        ];
        for (at, stream) in streams.into_iter().enumerate() {
            if stream.is_empty() {
                continue;
            }
            self.packed.clear();
            let packed = self.zstd.compress_to_buffer(stream, &mut self.packed)?;
            let len = u32::try_from(packed).map_err(io::Error::other)?;
            self.patch[at * 4..][..4].copy_from_slice(&len.to_le_bytes());
            self.patch.extend(&self.packed);
        }
        Ok(())
    }
}

/// The fastest level that still has Huffman's code, and told that nothing short is repeated: of gaps, which
/// are as good as random, the default takes a third of its time to find matches that are none.
fn compressor() -> io::Result<Compressor<'static>> {
    let mut zstd = Compressor::new(1)?;
    for parameter in [
        CParameter::Strategy(Strategy::ZSTD_fast),
        CParameter::MinMatch(7),
        CParameter::HashLog(8),
    ] {
        zstd.set_parameter(parameter)?;
    }
    Ok(zstd)
}

/// The words that differ between two chunks.
#[derive(Default)]
struct Changes {
    count: usize,
    /// Where; of the first so many. There is always room for a block more.
    places: Vec<u32>,
    /// By how much.
    diffs: Vec<Word>,
}

impl Changes {
    fn find(&mut self, old: &[Word], new: &[Word]) {
        let room = old.len().next_multiple_of(BLOCK) + BLOCK;
        self.places.resize(room, 0);
        self.diffs.resize(room, [0; 2]);
        self.count = 0;
        let (old_blocks, old_rest) = old.as_chunks::<BLOCK>();
        let (new_blocks, new_rest) = new.as_chunks::<BLOCK>();
        let mut first = 0;
        for (old, new) in old_blocks.chunks(AT_ONCE).zip(new_blocks.chunks(AT_ONCE)) {
            let mut masks = [0; AT_ONCE];
            differing(old, new, &mut masks);
            for ((old, new), mask) in old.iter().zip(new).zip(masks) {
                self.take(first, (old, new), mask);
                first += BLOCK as u32;
            }
        }
        // The last words, and as many of none as make a block.
        let (mut old, mut new, mut mask) = ([[0; 2]; BLOCK], [[0; 2]; BLOCK], [0]);
        old[..old_rest.len()].copy_from_slice(old_rest);
        new[..new_rest.len()].copy_from_slice(new_rest);
        differing(&[old], &[new], &mut mask);
        self.take(first, (&old, &new), mask[0]);
    }

    /// Takes those words of a block that the mask names.
    fn take(&mut self, first: u32, (old, new): (&Block, &Block), mut mask: u64) {
        let places = self.places[self.count..].first_chunk_mut::<BLOCK>();
        let diffs = self.diffs[self.count..].first_chunk_mut::<BLOCK>();
        let (Some(places), Some(diffs)) = (places, diffs) else {
            return;
        };
        self.count += mask.count_ones() as usize;
        let mut put = |at: usize| {
            let word = mask.trailing_zeros() as usize % BLOCK;
            let diff = u16::from_le_bytes(new[word]).wrapping_sub(u16::from_le_bytes(old[word]));
            places[at % BLOCK] = first + word as u32;
            diffs[at % BLOCK] = diff.to_le_bytes();
            mask &= mask.wrapping_sub(1);
            mask
        };
        // Of most blocks it is none to two, and to find out which would cost more than to write two: what
        // is too much is written over by the next block's.
        put(0);
        let (mut left, mut at) = (put(1), 2);
        while left != 0 {
            put(at);
            left = put(at + 1);
            at += 2;
        }
    }

    /// How much, block by block; after the last one come ones, which need no further bytes.
    fn diffs(&mut self) -> &[Block] {
        let whole = self.count.next_multiple_of(BLOCK);
        let ones = self.diffs.get_mut(self.count..whole).unwrap_or_default();
        ones.fill(1_u16.to_le_bytes());
        self.diffs[..whole].as_chunks().0
    }
}

const BLOCK: usize = size_of::<Block>() / size_of::<Word>();
