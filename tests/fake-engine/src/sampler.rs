//! Tokens out of a hash of the weights and of all tokens so far: deterministic, and other weights
//! give others.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// A token with the log probability that is told of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The token.
    pub token: u32,
    /// Its log probability.
    pub logprob: f64,
}

/// The digest of a sequence, taken up token by token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Context(u64);

impl Context {
    /// The digest of a prompt.
    pub fn of(ids: &[u32]) -> Self {
        ids.iter().fold(Self(0), |context, id| context.with(*id))
    }

    /// The digest of the sequence with one more token.
    pub fn with(self, token: u32) -> Self {
        Self(xxh3_64_with_seed(&token.to_le_bytes(), self.0))
    }
}

/// The token that follows; `salt` is 0 for a greedy choice, else what a seed was drawn to.
pub fn next(weights: u64, context: Context, salt: u64, vocab: u32) -> Sample {
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&weights.to_le_bytes());
    bytes[8..16].copy_from_slice(&context.0.to_le_bytes());
    bytes[16..].copy_from_slice(&salt.to_le_bytes());
    let hash = xxh3_64(&bytes);
    // Four digits, as the recordings have them: they are the same in JSON and out of it.
    let logprob = -0.1 - f64::from((hash >> 40) as u16 % 30_000) / 10_000.0;
    Sample {
        token: (hash % u64::from(vocab)) as u32,
        logprob: (logprob * 10_000.0).round() / 10_000.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_weights_and_tokens_give_the_same_token_and_others_give_others() {
        let context = Context::of(&[1, 5, 9]);
        assert_eq!(context, Context::of(&[1, 5]).with(9));
        let tokens = |weights| {
            (0..32)
                .map(|salt| next(weights, context, salt, 96).token)
                .collect::<Vec<_>>()
        };
        assert_eq!(tokens(7), tokens(7));
        assert_ne!(tokens(7), tokens(8));
        assert!(tokens(7).iter().all(|t| *t < 96));
    }
}
