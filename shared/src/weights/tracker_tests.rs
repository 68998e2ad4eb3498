#![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]
use super::{Range, runs};
use crate::ids::WeightVersion;
use crate::weights::{Manifest, Piece, PullTracker, TensorSpec};
use proptest::prelude::*;

fn manifest(buffer: &[u8], chunk_bytes: u64) -> Manifest {
    let (name, dtype, bytes) = ("w".to_owned(), "F16".to_owned(), buffer.len() as u64);
    let tensors = vec![TensorSpec {
        name,
        dtype,
        shape: vec![bytes / 2],
        offset: 0,
        bytes,
    }];
    Manifest::build(WeightVersion(1), buffer, chunk_bytes, tensors).unwrap()
}

fn pull(buffer: &[u8], chunk_bytes: u64) -> PullTracker {
    PullTracker::new(manifest(buffer, chunk_bytes)).unwrap()
}

fn feed(tracker: &mut PullTracker, buffer: &[u8], chunk: u64) {
    let range = tracker.manifest().chunk_range(chunk).unwrap();
    let bytes = &buffer[range.start as usize..range.end as usize];
    tracker.manifest().verify_chunk(chunk, bytes).unwrap();
    tracker.verified(chunk);
}

fn piece(chunk: u64, src: u64, dst: u64, len: u64) -> Piece {
    Piece {
        chunk,
        src,
        dst,
        len,
    }
}

/// Runs of chunks that are missing, in order.
fn remaining(tracker: &PullTracker) -> Vec<Range<u64>> {
    let chunks = 0..tracker.manifest().chunks();
    runs(chunks.filter(|&chunk| !tracker.has(chunk)))
}

#[test]
fn a_pull_goes_on_from_another_source_with_what_is_missing() {
    let buffer: Vec<u8> = (0..100).collect();
    let mut tracker = pull(&buffer, 10);
    for chunk in [0, 1, 5] {
        feed(&mut tracker, &buffer, chunk); // a rank has the first half and dies after 2 chunks
    }
    assert_eq!(remaining(&tracker), [2..5, 6..10]);
    assert_eq!(tracker.verified_bytes(), 30);
    for chunk in remaining(&tracker).into_iter().flatten() {
        feed(&mut tracker, &buffer, chunk); // a relay has everything
    }
    assert!(tracker.is_complete() && remaining(&tracker).is_empty());
    assert_eq!(tracker.verified_bytes(), 100);
}

#[test]
fn a_refused_chunk_stays_missing_and_a_repeated_one_counts_once() {
    let mut tracker = pull(&[1, 2, 3, 4], 2);
    for (chunk, bytes) in [(0, &[1, 3][..]), (0, &[1]), (9, &[1, 2])] {
        assert!(tracker.manifest().verify_chunk(chunk, bytes).is_err());
        tracker.refused(chunk);
    }
    assert_eq!(remaining(&tracker), [0..2]);
    feed(&mut tracker, &[1, 2, 3, 4], 0);
    feed(&mut tracker, &[1, 2, 3, 4], 0);
    assert_eq!(
        (tracker.verified_bytes(), tracker.has(0), tracker.has(1)),
        (2, true, false)
    );
}

#[test]
fn a_chunk_of_two_sources_is_whole_with_its_last_piece_and_missing_again_when_refused() {
    let mut tracker = pull(&[0; 30], 10);
    let (first, second) = (vec![(0, 0, 14)], vec![(100, 10, 20)]);
    let pieces = tracker.pieces(&[first.clone(), second.clone()]);
    assert_eq!(pieces[0], [piece(0, 0, 0, 10), piece(1, 10, 10, 4)]);
    assert_eq!(pieces[1], [piece(1, 104, 14, 6), piece(2, 110, 20, 10)]);
    assert!(!tracker.arrived(&pieces[0][1]));
    // The first source died; what came of it stays.
    assert_eq!(tracker.pieces(&[vec![], second.clone()])[1], pieces[1]);
    assert!(tracker.arrived(&pieces[1][0]));
    tracker.refused(1);
    assert_eq!(tracker.pieces(&[first, second]), pieces);
}

#[test]
fn a_successor_keeps_the_chunks_whose_bytes_did_not_change() {
    let (old, mut new) = ([7_u8; 40], [7_u8; 40]);
    new[15] = 8;
    let mut tracker = pull(&old, 10);
    feed(&mut tracker, &old, 0);
    feed(&mut tracker, &old, 1);
    feed(&mut tracker, &old, 3);
    let next = tracker.succeed(manifest(&new, 10)).unwrap();
    assert_eq!(next.verified_runs(), [0..1, 3..4]);
    // Other chunks of the same digests are other bytes of the buffer.
    let next = tracker.succeed(manifest(&new, 20)).unwrap();
    assert_eq!(next.verified_runs(), []);
}

proptest! {
    #[test]
    fn in_whatever_order_chunks_come_the_rest_is_exactly_what_did_not(
        halves in 1_usize..200,
        chunk_bytes in 1_u64..40,
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
    ) {
        let buffer: Vec<u8> = (0..halves * 2).map(|i| i as u8).collect();
        let mut tracker = pull(&buffer, chunk_bytes);
        let count = tracker.manifest().chunks();
        let mut came = std::collections::BTreeSet::new();
        for index in order {
            let chunk = index.index(count as usize) as u64;
            feed(&mut tracker, &buffer, chunk);
            came.insert(chunk);
        }
        let rest: Vec<u64> = remaining(&tracker).into_iter().flatten().collect();
        let expected: Vec<u64> = (0..count).filter(|c| !came.contains(c)).collect();
        prop_assert_eq!(&rest, &expected);
        prop_assert_eq!(tracker.is_complete(), expected.is_empty());
    }

    #[test]
    fn pieces_are_every_missing_byte_that_somebody_has_exactly_once(
        halves in 1_usize..100,
        chunk_bytes in 1_u64..40,
        came in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        sources in prop::collection::vec(
            prop::collection::vec((any::<u32>(), 0_u64..250, 0_u64..90), 0..6), 0..4),
    ) {
        let buffer: Vec<u8> = vec![3; halves * 2];
        let mut tracker = pull(&buffer, chunk_bytes);
        let bytes = tracker.manifest().bytes;
        let mut wanted: std::collections::BTreeSet<u64> = (0..bytes).collect();
        for index in came {
            let dst = index.index(buffer.len()) as u64;
            tracker.arrived(&piece(dst / chunk_bytes, 0, dst, 1));
            wanted.remove(&dst);
        }
        let runs: Vec<Vec<(u64, u64, u64)>> = sources
            .iter()
            .map(|runs| runs.iter().map(|&(src, dst, len)| (u64::from(src), dst, len)).collect())
            .collect();
        prop_assert_eq!(tracker.bytes_here(), bytes - wanted.len() as u64);
        wanted.retain(|at| {
            runs.iter().flatten().any(|(_, dst, len)| (*dst..dst + len).contains(at))
        });
        let mut got = std::collections::BTreeSet::new();
        for (source, pieces) in tracker.pieces(&runs).iter().enumerate() {
            for piece in pieces {
                let chunk = tracker.manifest().chunk_range(piece.chunk).unwrap();
                prop_assert!(chunk.start <= piece.dst && piece.range().end <= chunk.end);
                let has_it = runs[source].iter().any(|&(src, dst, len)| {
                    dst <= piece.dst
                        && piece.range().end <= dst + len
                        && piece.src == src + (piece.dst - dst)
                });
                prop_assert!(has_it, "{:?}", piece);
                for byte in piece.range() {
                    prop_assert!(got.insert(byte), "byte {} twice", byte);
                }
            }
        }
        prop_assert_eq!(got, wanted);
    }
}
