//! Weight versions as bytes: manifests, chunk digests, shards, and what a puller has so far.
//!
//! ```text
//!  one flat little-endian buffer   |t0|  t1  |t2|    t3     |      tensors, without gaps
//!  chunks of `chunk_bytes`         |c0 |c1 |c2 |c3 |c4 |c5|        xxh3-64 each, in the manifest
//!  shards of two trainer ranks     |rank 0     |rank 1    |        whole chunks
//! ```
//!
//! A puller checks the manifest against its blake3 digest (which the controller published), then
//! each chunk against the manifest: together they say that the buffer is the published one (I-4).

mod manifest;
mod tracker;

pub use manifest::{ChunkError, Manifest, ManifestError, TensorSpec};
pub use tracker::PullTracker;

use std::ops::Range;

/// The chunks that a trainer rank serves: `total` cut into `ranks` runs of almost equal length that
/// cover every chunk once. Empty for a rank that is none, or where there are fewer chunks than
/// ranks.
pub fn shard_chunks(total: u64, ranks: u64, rank: u64) -> Range<u64> {
    if rank >= ranks {
        return total..total;
    }
    let cut = |at: u64| {
        let position = u128::from(total) * u128::from(at) / u128::from(ranks);
        u64::try_from(position).unwrap_or(total)
    };
    cut(rank)..cut(rank + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_ranks_shards_cover_every_chunk_exactly_once(
            total in any::<u64>(), ranks in 1_u64..50
        ) {
            let mut next = 0;
            for rank in 0..ranks {
                let shard = shard_chunks(total, ranks, rank);
                prop_assert_eq!(shard.start, next);
                prop_assert!(shard.end - shard.start <= total / ranks + 1);
                next = shard.end;
            }
            prop_assert_eq!(next, total);
            prop_assert!(shard_chunks(total, ranks, ranks).is_empty());
        }
    }
}
