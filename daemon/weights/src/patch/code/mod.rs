//! How one chunk is made from what it was in another version.
//!
//! ```text
//!   the length of each, five u32 │ gaps │ signs │ large │ sizes │ wide     each by itself through zstd
//!
//!   words that differ:       at 3: +1     at 4: -7     at 600: +1     at 601: 16384 more
//!     gaps, a byte each           3            0     255 255  85            0
//!     signs, large, bits        0 0          1 1          0 0             0 1
//!     sizes, a byte each                      7                             0
//!     wide, two bytes each                                              16384
//! ```
//! A chunk is words of two bytes, the size of a bfloat16. For every word that differs there is a gap,
//! the words since the last one that did (255: 255 words and no change yet), and two bits: whether it went
//! down, and whether it went by more than one. If so its size is next, and where no byte holds that it is
//! 0 and the whole difference is next among the wide. All numbers are little-endian, the first bit of a byte
//! the lowest; what is empty has no bytes, and no large ones are said by none.
//!
//! An RL step moves most of the words that it changes by one, so of a change there is little more to tell
//! than where it is and up or down. Each stream is packed by itself because zstd has one code for all that
//! is in a block: gaps and signs in one took a tenth more. Of steps that change 1.4 % of the words, patches
//! have 0.8 % of the bytes, which is what such changes at random say (H(0.014) and a sign, over 16 bits);
//! where 21 % change 6.0 %. Zstd of new XOR old has 1.9 and 17 %, and is four times as slow.
mod decode;
mod encode;

pub(super) use decode::Decoder;
pub(super) use encode::Encoder;

/// As many words, and no change after them.
const FAR: u8 = 255;
/// What a patch consists of.
const STREAMS: usize = 5;
/// Bytes before them.
const HEAD: usize = STREAMS * 4;

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

    /// A patch of whatever streams.
    fn packed(streams: [Vec<u8>; STREAMS]) -> Vec<u8> {
        let packed = streams.map(|stream| match stream.is_empty() {
            true => stream,
            false => zstd::bulk::compress(&stream, 1).unwrap(),
        });
        let lengths = packed
            .iter()
            .flat_map(|one| (one.len() as u32).to_le_bytes());
        lengths.chain(packed.iter().flatten().copied()).collect()
    }

    #[test]
    fn a_patch_says_what_the_drawing_says() {
        let old = vec![0; 2000];
        let mut new = old.clone();
        for (at, diff) in [(3, 1), (4, -7), (600, 1), (601, 16384)] {
            new[at * 2..][..2].copy_from_slice(&i16::to_le_bytes(diff));
        }
        let gaps = vec![3, 0, FAR, FAR, 85, 0];
        let wide = 16384_u16.to_le_bytes().to_vec();
        let drawn = packed([gaps, vec![0b0010], vec![0b1010], vec![7, 0], wide]);
        let mut chunk = old.clone();
        Decoder::new().unwrap().apply(&drawn, &mut chunk).unwrap();
        assert_eq!(chunk, new);
        let mut encoder = Encoder::new().unwrap();
        let (made, changed) = encoder.encode(&old, &new).unwrap();
        let mut chunk = old.clone();
        Decoder::new().unwrap().apply(made, &mut chunk).unwrap();
        assert_eq!((chunk, changed), (new, 4));
    }

    #[test]
    fn changes_by_one_at_random_take_no_more_than_they_say() {
        let mut state = 1_u64;
        let mut new = vec![0; 1 << 20];
        let mut changed = 0;
        for word in new.as_chunks_mut::<2>().0 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            if (state >> 33) % 1_000_000 < 14_000 {
                *word = if state >> 63 == 0 {
                    [1, 0]
                } else {
                    [0xff, 0xff]
                };
                changed += 1;
            }
        }
        let old = vec![0; new.len()];
        let mut encoder = Encoder::new().unwrap();
        let (patch, words) = encoder.encode(&old, &new).unwrap();
        assert_eq!(words, changed);
        // Where they are, 7.6 bits, and a sign.
        let least = changed as f64 * 8.6 / 8.0;
        assert!(
            (patch.len() as f64) < least * 1.02,
            "{} of {least}",
            patch.len()
        );
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
        let bomb = packed([vec![FAR; 1 << 20], vec![], vec![], vec![], vec![]]);
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
            streams in proptest::array::uniform5(proptest::collection::vec(any::<u8>(), 0..100)),
            words in 0_usize..200,
        ) {
            let _ = Decoder::new().unwrap().apply(&packed(streams), &mut vec![0; words * 2]);
        }
    }
}
