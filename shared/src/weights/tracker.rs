//! What a puller has: verified chunks stay, whatever source they came from.
use super::manifest::{ChunkError, Manifest, ManifestError};
use std::ops::Range;

/// The progress of one pull. When a source dies, what was verified stays and the rest is asked of
/// another: [`Self::remaining_in`] with that source's chunks.
#[derive(Clone, Debug)]
pub struct PullTracker {
    manifest: Manifest,
    verified: Vec<bool>,
    verified_bytes: u64,
}

impl PullTracker {
    /// Nothing fetched yet. Refuses a manifest that describes no buffer.
    pub fn new(manifest: Manifest) -> Result<Self, ManifestError> {
        manifest.check()?;
        let verified = vec![false; manifest.chunk_xxh3.len()];
        Ok(Self {
            manifest,
            verified,
            verified_bytes: 0,
        })
    }

    /// What is pulled.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Checks a chunk's bytes and keeps note of it; a refused one stays missing. Giving one twice
    /// changes nothing.
    pub fn accept(&mut self, chunk: u64, bytes: &[u8]) -> Result<(), ChunkError> {
        self.manifest.verify_chunk(chunk, bytes)?;
        let slot = usize::try_from(chunk)
            .ok()
            .and_then(|at| self.verified.get_mut(at));
        if let Some(slot @ false) = slot {
            *slot = true;
            self.verified_bytes += bytes.len() as u64;
        }
        Ok(())
    }

    /// Whether the chunk was verified.
    pub fn has(&self, chunk: u64) -> bool {
        usize::try_from(chunk).is_ok_and(|at| self.verified.get(at) == Some(&true))
    }

    /// Bytes verified.
    pub fn verified_bytes(&self) -> u64 {
        self.verified_bytes
    }

    /// Whether every chunk is verified: the buffer is the published version.
    pub fn is_complete(&self) -> bool {
        self.verified.iter().all(|&done| done)
    }

    /// Runs of chunks that are missing, in order.
    pub fn remaining(&self) -> Vec<Range<u64>> {
        self.remaining_in(0..self.verified.len() as u64)
    }

    /// Runs of chunks that are missing among those a source serves, in order.
    pub fn remaining_in(&self, served: Range<u64>) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let end = served.end.min(self.verified.len() as u64);
        for chunk in (served.start..end).filter(|&chunk| !self.has(chunk)) {
            match runs.last_mut() {
                Some(run) if run.end == chunk => run.end += 1,
                _ => runs.push(chunk..chunk + 1),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]
    use crate::ids::WeightVersion;
    use crate::weights::{Manifest, PullTracker, TensorSpec, shard_chunks};
    use proptest::prelude::*;

    fn pull(buffer: &[u8], chunk_bytes: u64) -> PullTracker {
        let (name, dtype, bytes) = ("w".to_owned(), "F16".to_owned(), buffer.len() as u64);
        let tensors = vec![TensorSpec {
            name,
            dtype,
            shape: vec![bytes / 2],
            offset: 0,
            bytes,
        }];
        let manifest = Manifest::build(WeightVersion(1), buffer, chunk_bytes, tensors).unwrap();
        PullTracker::new(manifest).unwrap()
    }

    fn feed(tracker: &mut PullTracker, buffer: &[u8], chunk: u64) {
        let range = tracker.manifest().chunk_range(chunk).unwrap();
        tracker
            .accept(chunk, &buffer[range.start as usize..range.end as usize])
            .unwrap();
    }

    #[test]
    fn a_pull_goes_on_from_another_source_with_what_is_missing() {
        let buffer: Vec<u8> = (0..100).collect();
        let mut tracker = pull(&buffer, 10);
        for chunk in [0, 1, 5] {
            feed(&mut tracker, &buffer, chunk); // rank 0 serves 0..5 and dies after 2 chunks
        }
        assert_eq!(tracker.remaining_in(shard_chunks(10, 2, 0)), [2..5]);
        assert_eq!(tracker.remaining(), [2..5, 6..10]);
        assert_eq!(tracker.verified_bytes(), 30);
        for chunk in tracker.remaining().into_iter().flatten() {
            feed(&mut tracker, &buffer, chunk); // a relay has everything
        }
        assert!(tracker.is_complete() && tracker.remaining().is_empty());
        assert_eq!(tracker.verified_bytes(), 100);
    }

    #[test]
    fn a_refused_chunk_stays_missing_and_a_repeated_one_counts_once() {
        let mut tracker = pull(&[1, 2, 3, 4], 2);
        assert!(tracker.accept(0, &[1, 3]).is_err());
        assert!(tracker.accept(0, &[1]).is_err());
        assert!(tracker.accept(9, &[1, 2]).is_err());
        assert_eq!(tracker.remaining(), [0..2]);
        tracker.accept(0, &[1, 2]).unwrap();
        tracker.accept(0, &[1, 2]).unwrap();
        assert_eq!(
            (tracker.verified_bytes(), tracker.has(0), tracker.has(1)),
            (2, true, false)
        );
        assert_eq!(tracker.remaining_in(7..u64::MAX), []);
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
            let rest: Vec<u64> = tracker.remaining().into_iter().flatten().collect();
            let expected: Vec<u64> = (0..count).filter(|c| !came.contains(c)).collect();
            prop_assert_eq!(&rest, &expected);
            prop_assert_eq!(tracker.is_complete(), expected.is_empty());
        }
    }
}
