//! What nodes gave of shards that nobody here knows yet: they say it again when another controller leads, and that one
//! hears only afterwards that the step is done of which the shards are.
use robust_shared::ids::{Generation, Step};
use robust_shared::replicas::ShardKey;
use std::collections::{HashMap, VecDeque};

/// Kept of each node at most, whatever it says: as many as it tells again.
const MOST: usize = 64;

/// XXH3, and BLAKE3 where it was told.
pub(super) type Digests = (u64, Option<[u8; 32]>);

/// By the node that said it, whose word counts only for its own ranks; the newest last.
#[derive(Debug, Default)]
pub(super) struct Early(HashMap<String, VecDeque<(ShardKey, Digests)>>);

impl Early {
    /// A node said it of a shard.
    pub fn note(&mut self, node: String, key: ShardKey, digests: Digests) {
        let said = self.0.entry(node).or_default();
        said.retain(|(known, _)| *known != key);
        said.push_back((key, digests));
        if said.len() > MOST {
            said.pop_front();
        }
    }

    /// The step is known now: what was said of its shards.
    pub fn take(&mut self, step: Step, generation: Generation) -> Vec<(String, ShardKey, Digests)> {
        let mut taken = Vec::new();
        for (node, said) in &mut self.0 {
            let of = |key: &ShardKey| key.step == step && key.generation == generation;
            let (known, rest): (VecDeque<_>, _) = said.drain(..).partition(|(key, _)| of(key));
            *said = rest;
            let known = known.into_iter();
            taken.extend(known.map(|(key, digests)| (node.clone(), key, digests)));
        }
        taken
    }

    /// Nobody goes back to steps before this one.
    pub fn forget_before(&mut self, step: Step) {
        for said in self.0.values_mut() {
            said.retain(|(key, _)| key.step >= step);
        }
        self.0.retain(|_, said| !said.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(step: u64, generation: u64, rank: u32) -> ShardKey {
        ShardKey {
            step: Step(step),
            generation: Generation(generation),
            rank,
        }
    }

    #[test]
    fn what_was_said_too_early_is_there_when_the_step_is_known_and_only_once() {
        let mut early = Early::default();
        early.note("a".to_owned(), key(7, 2, 0), (1, None));
        early.note("b".to_owned(), key(7, 2, 0), (2, None));
        early.note("a".to_owned(), key(7, 1, 0), (3, None));
        let mut taken = early.take(Step(7), Generation(2));
        taken.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = [
            ("a".to_owned(), key(7, 2, 0), (1, None)),
            ("b".to_owned(), key(7, 2, 0), (2, None)),
        ];
        assert_eq!(taken, expected, "one node displaces no other one's word");
        assert_eq!(early.take(Step(7), Generation(2)), []);
        early.forget_before(Step(8));
        assert_eq!(early.take(Step(7), Generation(1)), []);
    }

    #[test]
    fn a_node_that_says_more_and_more_fills_no_memory_and_silences_no_other_one() {
        let mut early = Early::default();
        for rank in 0..2 * MOST as u32 {
            early.note("a".to_owned(), key(7, 2, rank), (1, None));
        }
        early.note("b".to_owned(), key(7, 2, 0), (2, None));
        early.note("b".to_owned(), key(7, 2, 0), (3, None));
        let taken = early.take(Step(7), Generation(2));
        let of = |node: &str| taken.iter().filter(|(name, ..)| name == node).count();
        assert_eq!((of("a"), of("b")), (MOST, 1));
        let newest = key(7, 2, 2 * MOST as u32 - 1);
        assert!(taken.iter().any(|(_, key, _)| *key == newest));
        assert!(
            taken.contains(&("b".to_owned(), key(7, 2, 0), (3, None))),
            "its last word"
        );
    }
}
