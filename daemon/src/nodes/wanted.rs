//! Which shards nodes may send, and how many at a time.
//!
//! ```text
//!  the gang's work begins ──► of_gang: each rank, its incarnation, its node, the steps ┐
//!  a restore asks a holder ─► brought: step and rank, the holder, the bytes ───────────┴─► check
//! ```
//! What a node sends lies in the leader's memory, so nothing is taken that nobody waits for.
use robust_proto::v1;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Copies of one shard on their way at a time: over a link that is broken and is not known to be, over the one
/// after it, and one more.
const MOST_COPIES: usize = 3;

/// A rank on another node, whose snapshots are kept here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankThere {
    /// Its incarnation.
    pub incarnation: u64,
    /// Its place in the gang.
    pub rank: u32,
    /// The node that it runs on.
    pub node: String,
    /// Bytes of its snapshots, where they are known: all those of one layout have as many.
    pub bytes: Option<u64>,
}

/// What is waited for. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    /// By incarnation, with the steps of the gang's work.
    of_gang: HashMap<u64, (RankThere, RangeInclusive<u64>)>,
    /// By step and rank, the node that was asked, and the bytes.
    brought: HashMap<(u64, u32), (String, u64)>,
    /// Copies on their way, by incarnation, step and rank.
    copies: HashMap<(u64, u64, u32), usize>,
}

/// Why a shard is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unwanted {
    /// Nobody waits for it, or for it from there.
    Unexpected,
    /// It is on its way too often already.
    Often,
    /// The rank's snapshots have so many bytes.
    Size(u64),
}

/// A shard on its way; dropped, it is no more.
#[derive(Debug)]
pub(super) struct OnItsWay {
    wanted: Wanted,
    key: (u64, u64, u32),
}

impl Wanted {
    /// The ranks of the gang's work at these steps; those of an earlier work are not waited for any more.
    pub fn of_gang(&self, steps: RangeInclusive<u64>, ranks: Vec<RankThere>) {
        let ranks = ranks.into_iter();
        let of_gang = ranks.map(|rank| (rank.incarnation, (rank, steps.clone())));
        self.lock().of_gang = of_gang.collect();
    }

    /// A node was asked to bring a shard back.
    pub fn brought(&self, (step, rank): (u64, u32), from: &str, bytes: u64) {
        let asked = (from.to_owned(), bytes);
        self.lock().brought.insert((step, rank), asked);
    }

    /// It is here, or is not waited for any more.
    pub fn forget(&self, key: (u64, u32)) {
        self.lock().brought.remove(&key);
    }

    /// Whether this node may send this shard now.
    pub fn take(&self, header: &v1::ShardHeader, from: &str) -> Result<OnItsWay, Unwanted> {
        let mut table = self.lock();
        let (step, rank) = (header.step, header.rank);
        let expected = match header.incarnation {
            0 => table
                .brought
                .get(&(step, rank))
                .is_some_and(|(node, bytes)| (node.as_str(), *bytes) == (from, header.bytes)),
            incarnation => table.of_gang.get(&incarnation).is_some_and(|(of, steps)| {
                (of.rank, of.node.as_str()) == (rank, from) && steps.contains(&step)
            }),
        };
        if !expected {
            return Err(Unwanted::Unexpected);
        }
        let of = table.of_gang.get(&header.incarnation);
        if let Some(bytes) = of.and_then(|(of, _)| of.bytes)
            && bytes != header.bytes
        {
            return Err(Unwanted::Size(bytes));
        }
        let key = (header.incarnation, step, rank);
        let copies = table.copies.entry(key).or_default();
        if *copies >= MOST_COPIES {
            return Err(Unwanted::Often);
        }
        *copies += 1;
        let wanted = self.clone();
        Ok(OnItsWay { wanted, key })
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // No code can panic while it holds the lock, so a poisoned table is as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        let mut table = self.wanted.lock();
        if let Some(copies) = table.copies.get_mut(&self.key) {
            *copies -= 1;
            if *copies == 0 {
                table.copies.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn header(incarnation: u64, step: u64, rank: u32, bytes: u64) -> v1::ShardHeader {
        v1::ShardHeader {
            incarnation,
            rank,
            step,
            bytes,
        }
    }

    fn refused(wanted: &Wanted, header: v1::ShardHeader, from: &str) -> Option<Unwanted> {
        wanted.take(&header, from).err()
    }

    #[test]
    fn a_node_sends_the_snapshots_of_its_own_ranks_at_the_step_that_is_trained() {
        let wanted = Wanted::default();
        let unexpected = Some(Unwanted::Unexpected);
        assert_eq!(refused(&wanted, header(7, 3, 1, 5), "b"), unexpected);
        let there = RankThere {
            incarnation: 7,
            rank: 1,
            node: "b".to_owned(),
            bytes: None,
        };
        wanted.of_gang(3..=3, vec![there.clone()]);
        assert_eq!(refused(&wanted, header(7, 3, 1, 5), "b"), None);
        assert_eq!(refused(&wanted, header(7, 3, 1, 6), "b"), None);
        let bytes = Some(5);
        wanted.of_gang(3..=3, vec![RankThere { bytes, ..there }]);
        assert_eq!(refused(&wanted, header(7, 3, 1, 5), "b"), None);
        for other in [4, 6, 0, 1 << 40] {
            let other = header(7, 3, 1, other);
            assert_eq!(
                refused(&wanted, other, "b"),
                Some(Unwanted::Size(5)),
                "{other:?}"
            );
        }
        for other in [header(8, 3, 1, 5), header(7, 4, 1, 5), header(7, 3, 0, 5)] {
            assert_eq!(refused(&wanted, other, "b"), unexpected, "{other:?}");
        }
        assert_eq!(refused(&wanted, header(7, 3, 1, 5), "c"), unexpected);
        wanted.of_gang(4..=4, Vec::new());
        assert_eq!(refused(&wanted, header(7, 3, 1, 5), "b"), unexpected);
    }

    #[test]
    fn a_gang_that_trains_committed_steps_again_sends_the_snapshots_of_all_of_them() {
        let wanted = Wanted::default();
        let there = RankThere {
            incarnation: 7,
            rank: 1,
            node: "b".to_owned(),
            bytes: None,
        };
        wanted.of_gang(0..=2, vec![there]);
        for step in [1, 2] {
            assert_eq!(refused(&wanted, header(7, step, 1, 5), "b"), None);
        }
        let later = refused(&wanted, header(7, 3, 1, 5), "b");
        assert_eq!(later, Some(Unwanted::Unexpected));
    }

    #[test]
    fn a_shard_is_brought_back_by_whom_it_was_asked_of_with_its_bytes() {
        let wanted = Wanted::default();
        let unexpected = Some(Unwanted::Unexpected);
        wanted.brought((3, 1), "b", 5);
        assert_eq!(refused(&wanted, header(0, 3, 1, 5), "b"), None);
        assert_eq!(refused(&wanted, header(0, 3, 1, 5), "c"), unexpected);
        assert_eq!(refused(&wanted, header(0, 3, 1, 1 << 40), "b"), unexpected);
        assert_eq!(refused(&wanted, header(0, 2, 1, 5), "b"), unexpected);
        wanted.forget((3, 1));
        assert_eq!(refused(&wanted, header(0, 3, 1, 5), "b"), unexpected);
    }

    #[test]
    fn one_shard_is_on_its_way_so_often_and_no_more() {
        let wanted = Wanted::default();
        wanted.brought((3, 1), "b", 5);
        let take = || wanted.take(&header(0, 3, 1, 5), "b");
        let ways: Vec<_> = (0..MOST_COPIES).map(|_| take().unwrap()).collect();
        assert_eq!(take().unwrap_err(), Unwanted::Often);
        drop(ways);
        take().unwrap();
        assert!(wanted.lock().copies.is_empty());
    }
}
