//! Words of two bytes, 64 at a time: which of two versions differ, and how much.
//!
//! Both functions answer with a bit for each word, the lowest for the first. What comes of them is the
//! same on every processor; with AVX2 it comes at the speed of the memory. The compiler makes no such code
//! of the plain loops, and for none but SSE2 as the workspace is built.
#![allow(unsafe_code)]

/// A word, the size of a bfloat16.
pub type Word = [u8; 2];

/// As many words as a mask has bits: two cache lines.
pub type Block = [Word; 64];

/// Which words of two versions differ, block by block. Blocks that one of the three has not are left out.
pub fn differing(old: &[Block], new: &[Block], masks: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has what the function is compiled for; it reads and writes through its
        // slices alone.
        return unsafe { x86::differing(old, new, masks) };
    }
    plain::differing(old, new, masks);
}

/// Of differences, block by block: which are negative, and which are neither 1 nor -1.
pub fn signs_and_large(diffs: &[Block], signs: &mut [u64], large: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: as above.
        return unsafe { x86::signs_and_large(diffs, signs, large) };
    }
    plain::signs_and_large(diffs, signs, large);
}

mod plain {
    use super::Block;

    pub fn differing(old: &[Block], new: &[Block], masks: &mut [u64]) {
        for ((old, new), mask) in old.iter().zip(new).zip(masks) {
            *mask = 0;
            // Of most blocks none does.
            if old != new {
                for (at, (old, new)) in old.iter().zip(new).enumerate() {
                    *mask |= u64::from(old != new) << at;
                }
            }
        }
    }

    pub fn signs_and_large(diffs: &[Block], signs: &mut [u64], large: &mut [u64]) {
        for ((diffs, signs), large) in diffs.iter().zip(signs).zip(large) {
            (*signs, *large) = (0, 0);
            for (at, &diff) in diffs.iter().enumerate() {
                let diff = i16::from_le_bytes(diff);
                *signs |= u64::from(diff < 0) << at;
                *large |= u64::from(diff != 1 && diff != -1) << at;
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, _MM_HINT_T0, _mm_prefetch, _mm256_cmpeq_epi16, _mm256_movemask_epi8,
        _mm256_or_si256, _mm256_packs_epi16, _mm256_permute4x64_epi64, _mm256_set_epi64x,
        _mm256_set1_epi16,
    };

    use super::{Block, Word};

    /// Words of a cache line.
    const LINE: usize = 32;
    /// Words by which a line is asked for before its use: a page, since the processor's own guesses end
    /// with each.
    const AHEAD: usize = 2048;

    #[target_feature(enable = "avx2")]
    pub fn differing(old: &[Block], new: &[Block], masks: &mut [u64]) {
        for ((old, new), mask) in old.iter().zip(new).zip(masks) {
            for line in (AHEAD..AHEAD + old.len()).step_by(LINE) {
                // Prefetching reads nothing: beyond the end it has no effect.
                _mm_prefetch::<_MM_HINT_T0>(old.as_ptr().wrapping_add(line).cast());
                _mm_prefetch::<_MM_HINT_T0>(new.as_ptr().wrapping_add(line).cast());
            }
            let (old, new) = (quarters(old), quarters(new));
            *mask = !bits([0, 1, 2, 3].map(|at| _mm256_cmpeq_epi16(old[at], new[at])));
        }
    }

    #[target_feature(enable = "avx2")]
    pub fn signs_and_large(diffs: &[Block], signs: &mut [u64], large: &mut [u64]) {
        let (up, down) = (_mm256_set1_epi16(1), _mm256_set1_epi16(-1));
        for ((diffs, signs), large) in diffs.iter().zip(signs).zip(large) {
            let diffs = quarters(diffs);
            *signs = bits(diffs);
            *large = !bits(diffs.map(|diff| {
                _mm256_or_si256(_mm256_cmpeq_epi16(diff, up), _mm256_cmpeq_epi16(diff, down))
            }));
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn quarters(block: &Block) -> [__m256i; 4] {
        let words: &[[Word; 4]; 16] = block
            .as_chunks()
            .0
            .first_chunk()
            .unwrap_or(&[[[0; 2]; 4]; 16]);
        // Loads, as the compiler sees it.
        let four = |at: usize| {
            let [a, b, c, d] = words[at];
            i64::from_le_bytes([a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]])
        };
        let quarter = |at| _mm256_set_epi64x(four(at + 3), four(at + 2), four(at + 1), four(at));
        [quarter(0), quarter(4), quarter(8), quarter(12)]
    }

    /// The highest bit of each word.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn bits([a, b, c, d]: [__m256i; 4]) -> u64 {
        u64::from(half(a, b)) | u64::from(half(c, d)) << 32
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn half(a: __m256i, b: __m256i) -> u32 {
        // Each lane takes eight words of `a` and eight of `b`; then they are put in order.
        let bytes = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi16(a, b));
        _mm256_movemask_epi8(bytes).cast_unsigned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    fn blocks(words: &[u16]) -> Vec<Block> {
        let bytes: Vec<Word> = words.iter().map(|word| word.to_le_bytes()).collect();
        bytes.as_chunks().0.to_vec()
    }

    proptest! {
        #[test]
        fn every_processor_finds_the_same_words(
            words in proptest::collection::vec(any::<u16>(), 0..260),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u16>()), 0..40),
        ) {
            let mut changed = words.clone();
            for (at, word) in changes.iter().filter(|_| !words.is_empty()) {
                changed[at.index(words.len())] = *word;
            }
            let (old, new) = (blocks(&words), blocks(&changed));
            let (mut found, mut expected) = (vec![7; old.len()], vec![9; old.len()]);
            differing(&old, &new, &mut found);
            plain::differing(&old, &new, &mut expected);
            prop_assert_eq!(&found, &expected);
            for (at, (old, new)) in old.as_flattened().iter().zip(new.as_flattened()).enumerate() {
                prop_assert_eq!(found[at / 64] >> (at % 64) & 1 == 1, old != new);
            }
        }

        #[test]
        fn every_processor_sees_the_same_signs_and_sizes(
            diffs in proptest::collection::vec(prop_oneof![Just(1), Just(u16::MAX), any::<u16>()], 0..260),
        ) {
            let diffs = blocks(&diffs);
            let none = vec![7; diffs.len()];
            let (mut signs, mut large) = (none.clone(), none.clone());
            signs_and_large(&diffs, &mut signs, &mut large);
            let (mut expected_signs, mut expected_large) = (none.clone(), none);
            plain::signs_and_large(&diffs, &mut expected_signs, &mut expected_large);
            prop_assert_eq!(&signs, &expected_signs);
            prop_assert_eq!(&large, &expected_large);
            for (at, diff) in diffs.as_flattened().iter().enumerate() {
                let diff = i16::from_le_bytes(*diff);
                prop_assert_eq!(signs[at / 64] >> (at % 64) & 1 == 1, diff < 0);
                prop_assert_eq!(large[at / 64] >> (at % 64) & 1 == 1, diff.unsigned_abs() != 1);
            }
        }
    }

    #[test]
    fn blocks_that_one_side_has_not_are_left_out() {
        let (old, new) = (blocks(&[0; 128]), blocks(&[1; 64]));
        let mut masks = [5; 3];
        differing(&old, &new, &mut masks);
        assert_eq!(masks, [u64::MAX, 5, 5]);
    }
}
