//! What the job's seed and settings determine: prompt order, sampling seed, name of the warm start.
use super::Job;
use std::path::PathBuf;

/// Part of [`Job::warmup_digest`]: raised whenever the same settings make another warm start than
/// before, so that caches are redone.
pub const WARMUP_RECIPE: u32 = 2;

impl Job {
    /// The dataset line (from 0) of a batch's group: consecutive places of an endless repetition of
    /// the dataset in one seeded order. Batches count from 1. The dataset must not be empty.
    pub fn prompt_index(&self, batch: u64, group: u32, dataset_len: usize) -> usize {
        self.prompt_index_of(batch, group, self.batch.prompts, dataset_len)
    }

    /// The same for a batch of so many prompts: one that began before their number was changed.
    pub fn prompt_index_of(
        &self,
        batch: u64,
        group: u32,
        prompts: u32,
        dataset_len: usize,
    ) -> usize {
        let len = (dataset_len as u64).max(1);
        let first = batch.saturating_sub(1).wrapping_mul(u64::from(prompts));
        let place = first.wrapping_add(u64::from(group)) % len;
        usize::try_from(permute(place, len, self.derived_seed("prompt order"))).unwrap_or(0)
    }

    /// The sampler's seed, the same for every trajectory: its numbers are keyed by (seed,
    /// trajectory, position). Below 2^53, so that any JSON reader keeps it.
    pub fn trajectory_seed(&self) -> u64 {
        self.derived_seed("trajectories") >> 11
    }

    /// Names the warm-start model: hex digest (blake3) of all settings that determine it. The
    /// tokenizer counts by its content, which the caller gives.
    pub fn warmup_digest(&self, tokenizer: &[u8]) -> String {
        let (c, w) = (&self.model.config, &self.model.warmup);
        let mut hasher = blake3::Hasher::new_derive_key("robust warm start v1");
        for number in [
            WARMUP_RECIPE,
            c.hidden_size,
            c.num_hidden_layers,
            c.num_attention_heads,
            c.num_key_value_heads,
            c.head_dim,
            c.intermediate_size,
            c.max_position_embeddings,
            w.batch,
        ] {
            hasher.update(&number.to_le_bytes());
        }
        for number in [w.steps, w.seed] {
            hasher.update(&number.to_le_bytes());
        }
        for number in [
            c.rope_theta,
            c.rms_norm_eps,
            w.lr,
            w.copying_first,
            w.tool_share,
            w.call_mistakes,
            w.copy_mistakes,
        ] {
            hasher.update(&number.to_bits().to_le_bytes());
        }
        hasher.update(blake3::hash(tokenizer).as_bytes());
        hasher.finalize().to_hex().to_string()
    }

    /// The folder of the warm-start model below a cache folder.
    pub fn warmup_folder(&self, cache: &std::path::Path, tokenizer: &[u8]) -> PathBuf {
        cache.join("warmup").join(self.warmup_digest(tokenizer))
    }

    fn derived_seed(&self, purpose: &str) -> u64 {
        let mut hasher = blake3::Hasher::new_derive_key("robust job seed v1");
        hasher.update(&self.job.seed.to_le_bytes());
        hasher.update(purpose.as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        u64::from_le_bytes(first)
    }
}

/// A permutation of `0..len`: a Feistel network on the next even number of bits, applied again
/// while it leaves the range (cycle walking), so no table of the dataset's size is needed.
fn permute(place: u64, len: u64, key: u64) -> u64 {
    let bits = 64 - len.saturating_sub(1).leading_zeros();
    let half = bits.div_ceil(2).max(1);
    let mask = (1_u64 << half) - 1;
    let mut value = place;
    loop {
        let (mut left, mut right) = (value >> half, value & mask);
        for round in 0..4 {
            (left, right) = (
                right,
                left ^ (mix(right ^ mix(key.wrapping_add(round))) & mask),
            );
        }
        value = (left << half) | right;
        if value < len {
            return value;
        }
    }
}

/// SplitMix64's finaliser.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::job::tests::minimal;
    use std::collections::BTreeSet;

    #[test]
    fn every_prompt_is_used_once_before_any_is_used_again() {
        let job = minimal();
        for len in [1, 2, 7, 64, 1000] {
            let places = (0..len as u64).map(|at| {
                let per = u64::from(job.batch.prompts);
                job.prompt_index(1 + at / per, (at % per) as u32, len)
            });
            assert_eq!(
                places.collect::<BTreeSet<_>>(),
                (0..len).collect(),
                "dataset of {len}"
            );
        }
    }

    #[test]
    fn the_order_of_prompts_depends_on_the_seed_and_is_not_the_files() {
        let order = |seed| {
            let mut job = minimal();
            job.job.seed = seed;
            (1..20)
                .map(|batch| job.prompt_index(batch, 0, 1000))
                .collect::<Vec<_>>()
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        assert!(!order(1).is_sorted());
    }

    #[test]
    fn the_warm_start_has_another_name_when_anything_it_depends_on_changes() {
        let job = minimal();
        let mut other = job.clone();
        other.model.warmup.lr = 0.5;
        assert_ne!(job.warmup_digest(b"{}"), other.warmup_digest(b"{}"));
        assert_ne!(job.warmup_digest(b"{}"), job.warmup_digest(b"{ }"));
        let mut same = job.clone();
        same.job.steps = Some(7);
        assert_eq!(job.warmup_digest(b"{}"), same.warmup_digest(b"{}"));
        assert!(job.trajectory_seed() < 1 << 53);
    }
}
