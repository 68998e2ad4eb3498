//! What nodes gave of shards that nobody here knows yet: they say it again when another controller leads, and that one
//! hears only afterwards that the step is done of which the shards are.
use robust_shared::ids::{Generation, Step};
use robust_shared::replicas::ShardKey;
use std::collections::HashMap;

/// Kept at most, whatever nodes say.
const MOST: usize = 1_024;

/// XXH3, and BLAKE3 where it was told.
pub(super) type Digests = (u64, Option<[u8; 32]>);

/// By the node that said it, whose word counts only for its own ranks.
#[derive(Debug, Default)]
pub(super) struct Early(HashMap<(String, ShardKey), Digests>);

impl Early {
    /// A node said it of a shard.
    pub fn note(&mut self, node: String, key: ShardKey, digests: Digests) {
        if self.0.len() < MOST {
            self.0.insert((node, key), digests);
        }
    }

    /// The step is known now: what was said of its shards.
    pub fn take(&mut self, step: Step, generation: Generation) -> Vec<(String, ShardKey, Digests)> {
        let of = |key: &ShardKey| key.step == step && key.generation == generation;
        let taken = self.0.extract_if(|(_, key), _| of(key));
        taken
            .map(|((node, key), digests)| (node, key, digests))
            .collect()
    }

    /// Nobody goes back to steps before this one.
    pub fn forget_before(&mut self, step: Step) {
        self.0.retain(|(_, key), _| key.step >= step);
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
    fn a_node_that_says_more_and_more_fills_no_memory() {
        let mut early = Early::default();
        for rank in 0..2 * MOST as u32 {
            early.note("a".to_owned(), key(7, 2, rank), (1, None));
        }
        assert_eq!(early.take(Step(7), Generation(2)).len(), MOST);
    }
}
