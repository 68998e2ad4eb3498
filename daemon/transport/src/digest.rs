//! XXH3-64 of a part while its pieces are copied to their place.
//!
//! The bytes of a piece lie in the processor's cache when UCX hands them over and are somewhere
//! in memory afterwards: read once for both, the digest costs a fraction of what it costs later.
//! The copy goes past the cache, for a version is larger than it and is not looked at soon.
//!
//! The algorithm is that of the `xxhash-rust` crate (seed 0, default secret), which computes it
//! for memory only; a property test holds the two together. Input is consumed in blocks of 1 KiB
//! of 16 stripes; the last block and the last stripe of a message are special, so the length is
//! known beforehand.
#![allow(unsafe_code)]

use crate::outside::Outside;

/// Bytes between two scrambles: the default secret allows for 16 stripes.
pub(crate) const BLOCK: usize = 1024;
const STRIPE: usize = 64;
/// Shorter messages have another algorithm, and no need of this one.
const SHORTEST: usize = 241;

const PRIME32: [u64; 3] = [0x9E37_79B1, 0x85EB_CA77, 0xC2B2_AE3D];
const PRIME64: [u64; 5] = [
    0x9E37_79B1_85EB_CA87,
    0xC2B2_AE3D_27D4_EB4F,
    0x1656_67B1_9E37_79F9,
    0x85EB_CA77_C2B2_AE63,
    0x27D4_EB2F_1656_67C5,
];

/// XXH3's default secret.
#[rustfmt::skip]
const SECRET: [u8; 192] = [
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
];

type Lanes = [u64; 8];

/// The digest of one part, as far as its pieces have come.
pub(crate) struct PartDigest {
    lanes: Lanes,
    fed: usize,
    total: usize,
    /// The result, once all of it was fed; nothing if a piece was missed.
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Done(u64),
    Lost,
}

impl PartDigest {
    /// For a part of `total` bytes.
    pub fn new(total: usize) -> PartDigest {
        let state = match total {
            SHORTEST.. => State::Open,
            _ => State::Lost,
        };
        PartDigest {
            lanes: [
                PRIME32[2], PRIME64[0], PRIME64[1], PRIME64[2], PRIME64[3], PRIME32[1], PRIME64[4],
                PRIME32[0],
            ],
            fed: 0,
            total,
            state,
        }
    }

    /// The digest, if every piece was fed in order.
    pub fn finished(&self) -> Option<u64> {
        match self.state {
            State::Done(digest) => Some(digest),
            State::Open | State::Lost => None,
        }
    }

    /// Copies the piece at `offset` of the part to `to`, and digests it if it is the next one: each byte
    /// as it was copied, whoever writes to the piece meanwhile.
    ///
    /// # Safety
    /// `to` is writable for the length of `piece`, does not overlap it, and nobody else accesses
    /// it meanwhile.
    pub unsafe fn copy(&mut self, offset: usize, piece: Outside<'_>, to: *mut u8) {
        let end = offset.saturating_add(piece.len());
        let last = end == self.total;
        let aligned = piece.len().is_multiple_of(BLOCK) || (last && piece.len() >= STRIPE);
        let next = self.state == State::Open && offset == self.fed && end <= self.total && aligned;
        if !next {
            self.state = State::Lost;
            // SAFETY: the caller's promise.
            return unsafe { piece.copy_to(to) };
        }
        // All whole blocks but that at the very end, which is special even if it is whole.
        let whole = if last {
            (piece.len() - 1) / BLOCK
        } else {
            piece.len() / BLOCK
        };
        let (blocks, rest) = piece.split_at(whole * BLOCK);
        // SAFETY: the caller's promise, for the first bytes.
        unsafe { copy_blocks(&mut self.lanes, blocks, to) };
        // SAFETY: the caller's promise, for the others.
        unsafe { rest.copy_to(to.add(blocks.len())) };
        self.fed = end;
        if last {
            // SAFETY: the caller's promise; all of it was written just now.
            let copied = unsafe { std::slice::from_raw_parts(to, piece.len()) };
            self.finish(copied, &copied[blocks.len()..]);
        }
    }

    /// `rest` is the special block at the end of the last piece, `copied`.
    fn finish(&mut self, copied: &[u8], rest: &[u8]) {
        let stripes = (rest.len() - 1) / STRIPE;
        for (at, stripe) in rest.as_chunks::<STRIPE>().0[..stripes].iter().enumerate() {
            accumulate(&mut self.lanes, stripe, secret(8 * at));
        }
        if let Some(stripe) = copied.last_chunk() {
            accumulate(&mut self.lanes, stripe, secret(SECRET.len() - STRIPE - 7));
        }
        let mut sum = (self.total as u64).wrapping_mul(PRIME64[0]);
        let keys = secret(11).as_chunks::<8>().0;
        for (lanes, keys) in self
            .lanes
            .as_chunks::<2>()
            .0
            .iter()
            .zip(keys.as_chunks::<2>().0)
        {
            let mixed = |at: usize| u128::from(lanes[at] ^ u64::from_le_bytes(keys[at]));
            let product = mixed(0) * mixed(1);
            sum = sum.wrapping_add(product as u64 ^ (product >> 64) as u64);
        }
        sum ^= sum >> 37;
        sum = sum.wrapping_mul(0x1656_6791_9E37_79F9);
        self.state = State::Done(sum ^ (sum >> 32));
    }
}

/// A stripe's worth of the secret.
#[inline(always)]
fn secret(at: usize) -> &'static [u8; STRIPE] {
    SECRET[at..].first_chunk().unwrap_or(&[0; STRIPE])
}

#[inline(always)]
fn accumulate(lanes: &mut Lanes, stripe: &[u8; STRIPE], secret: &[u8; STRIPE]) {
    let (words, keys) = (stripe.as_chunks::<8>().0, secret.as_chunks::<8>().0);
    for at in 0..8 {
        let word = u64::from_le_bytes(words[at]);
        let keyed = word ^ u64::from_le_bytes(keys[at]);
        let product = (keyed & 0xffff_ffff) * (keyed >> 32);
        lanes[at ^ 1] = lanes[at ^ 1].wrapping_add(word);
        lanes[at] = lanes[at].wrapping_add(product);
    }
}

#[inline(always)]
fn scramble(lanes: &mut Lanes) {
    let keys = secret(SECRET.len() - STRIPE).as_chunks::<8>().0;
    for (lane, key) in lanes.iter_mut().zip(keys) {
        let mixed = *lane ^ (*lane >> 47) ^ u64::from_le_bytes(*key);
        *lane = mixed.wrapping_mul(PRIME32[0]);
    }
}

/// # Safety
/// As for [`PartDigest::copy`]; `blocks` are whole ones.
unsafe fn copy_blocks(lanes: &mut Lanes, blocks: Outside<'_>, to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it; the caller's promise.
        return unsafe { x86::copy_blocks(lanes, blocks, to) };
    }
    let (mut rest, mut held) = (blocks, [0; BLOCK]);
    for at in (0..blocks.len()).step_by(BLOCK) {
        let (block, behind) = rest.split_at(BLOCK);
        // SAFETY: as long, and nobody else's.
        unsafe { block.copy_to(held.as_mut_ptr()) };
        digest_block(lanes, &held);
        // SAFETY: the caller's promise, for the block's place.
        unsafe { std::ptr::copy_nonoverlapping(held.as_ptr(), to.add(at), BLOCK) };
        rest = behind;
    }
}

#[inline(always)]
fn digest_block(lanes: &mut Lanes, block: &[u8; BLOCK]) {
    for (at, stripe) in block.as_chunks::<STRIPE>().0.iter().enumerate() {
        accumulate(lanes, stripe, secret(8 * at));
    }
    scramble(lanes);
}

/// The same code, compiled for wider registers, and stores past the cache.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::{
        __m256i, _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm256_store_si256, _mm256_storeu_si256,
        _mm256_stream_si256,
    };

    use super::{BLOCK, Lanes, Outside, digest_block};

    /// A block as it was read, in the nearest cache.
    #[repr(align(32))]
    struct Held([u8; BLOCK]);

    /// Bytes of a cache line.
    const LINE: usize = 64;
    /// How far before its use a line is asked for: the processor's own guesses end with each page.
    const AHEAD: usize = 4096;

    /// # Safety
    /// As for [`super::copy_blocks`].
    #[target_feature(enable = "avx2")]
    pub unsafe fn copy_blocks(lanes: &mut Lanes, blocks: Outside<'_>, to: *mut u8) {
        let aligned = to.addr().is_multiple_of(size_of::<__m256i>());
        let mut held = Held([0; BLOCK]);
        for at in (0..blocks.len()).step_by(BLOCK) {
            let block = blocks.start().wrapping_add(at);
            for line in (AHEAD..AHEAD + BLOCK).step_by(LINE) {
                // Prefetching reads nothing: beyond the end it has no effect.
                _mm_prefetch::<_MM_HINT_T0>(block.wrapping_add(line).cast());
            }
            // SAFETY: a whole block, and the caller's promise for its place.
            unsafe { copy_block(block, &mut held, to.add(at), aligned) };
            digest_block(lanes, &held.0);
        }
        // Stores past the cache are not ordered by the locks that tell others of these bytes.
        _mm_sfence();
    }

    /// Copies a block to `to`, and to where it is digested, of one look at it.
    ///
    /// # Safety
    /// There is a block at `block`, and `to` is writable for one; on a multiple of 32 bytes if `aligned`.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn copy_block(block: *const u8, held: &mut Held, to: *mut u8, aligned: bool) {
        let (held, to) = (held.0.as_mut_ptr().cast::<__m256i>(), to.cast::<__m256i>());
        for at in 0..BLOCK / size_of::<__m256i>() {
            let from = block.wrapping_add(at * size_of::<__m256i>());
            let word: __m256i;
            // Not an access of Rust's, which could race with whoever writes there, and could be made twice.
            // SAFETY: within the block; a load that needs no alignment.
            unsafe {
                asm!("vmovdqu {}, [{}]", out(ymm_reg) word, in(reg) from,
                    options(readonly, nostack, preserves_flags));
            }
            // SAFETY: within the block's places; a plain store needs no alignment.
            unsafe {
                _mm256_store_si256(held.add(at), word);
                if aligned {
                    _mm256_stream_si256(to.add(at), word);
                } else {
                    _mm256_storeu_si256(to.add(at), word);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use proptest::prelude::*;
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    /// Feeds `bytes` in `pieces` whole blocks at a time; answers the copy and the digest.
    fn run(bytes: &[u8], blocks: usize, shift: usize) -> (Vec<u8>, Option<u64>) {
        let mut digest = PartDigest::new(bytes.len());
        let mut out = vec![0; bytes.len() + shift];
        for (at, piece) in bytes.chunks(blocks * BLOCK).enumerate() {
            let offset = at * blocks * BLOCK;
            // SAFETY: within `out`, which nobody else knows.
            unsafe { digest.copy(offset, piece.into(), out.as_mut_ptr().add(shift + offset)) };
        }
        (out.split_off(shift), digest.finished())
    }

    proptest! {
        #[test]
        fn the_digest_is_that_of_the_library_and_the_copy_is_the_bytes(
            len in prop_oneof![0..5000usize, (0..9usize, 0..3usize).prop_map(|(n, d)| n * 1024 + d)],
            blocks in 1..5usize, shift in 0..40usize, seed: u8,
        ) {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 31 + at / 251) as u8 ^ seed).collect();
            let (copy, digest) = run(&bytes, blocks, shift);
            prop_assert_eq!(&copy, &bytes);
            let tail = len % (blocks * BLOCK);
            let short_tail = len > blocks * BLOCK && (1..STRIPE).contains(&tail);
            let expected = (len >= SHORTEST && !short_tail).then(|| xxh3_64(&bytes));
            prop_assert_eq!(digest, expected);
        }
    }

    #[test]
    fn pieces_out_of_order_are_copied_and_leave_no_digest() {
        let bytes: Vec<u8> = (0..3 * BLOCK).map(|at| at as u8).collect();
        for order in [[1, 0, 2], [0, 2, 1], [0, 0, 1]] {
            let mut digest = PartDigest::new(bytes.len());
            let mut out = vec![0; bytes.len()];
            for at in order {
                let piece = &bytes[at * BLOCK..][..BLOCK];
                // SAFETY: within `out`, which nobody else knows.
                unsafe { digest.copy(at * BLOCK, piece.into(), out.as_mut_ptr().add(at * BLOCK)) };
            }
            assert_eq!(digest.finished(), None);
            assert!(
                order
                    .iter()
                    .all(|at| out[at * BLOCK..][..BLOCK] == bytes[at * BLOCK..][..BLOCK])
            );
        }
    }
}
