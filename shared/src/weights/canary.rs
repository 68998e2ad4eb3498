//! A canary: what a version must answer to a fixed prompt, computed by the trainer that published it.
//!
//! An engine of somebody else's says 200 to a load and may serve other weights all the same (vLLM on a
//! CPU keeps a tied output head, SGLang serves old keys and values without a flush). So the trainer
//! computes a few greedy tokens and their logprobs with its own forward, and an engine must answer the
//! same before it gets traffic (I-4).

/// Greedy tokens of a fixed prompt, with their natural-log probabilities.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Canary {
    /// The prompt's token ids.
    pub prompt_ids: Vec<u32>,
    /// The most likely next token at every position, each fed back.
    pub ids: Vec<u32>,
    /// The logprob of each of those tokens.
    pub logprobs: Vec<f32>,
    /// How much less likely the second token was at each position, in nats. Where that is less than
    /// twice the tolerance, another rounding may choose the second one.
    pub margins: Vec<f32>,
}

/// What an engine answered differs from the trainer's canary.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CanaryError {
    /// The canary itself is not one.
    #[error("the canary has {ids} tokens, {logprobs} logprobs and {margins} margins")]
    Malformed {
        /// Its tokens.
        ids: usize,
        /// Its logprobs.
        logprobs: usize,
        /// Its margins.
        margins: usize,
    },
    /// The engine stopped early.
    #[error("the engine answered {got} tokens of {wanted}")]
    Short {
        /// Tokens that came.
        got: usize,
        /// Tokens that the canary has.
        wanted: usize,
    },
    /// A token or its logprob is another one.
    #[error(
        "token {at} is {got} with logprob {got_logprob:.5}, the trainer computed {wanted} with \
         {wanted_logprob:.5} (tolerance {tolerance})"
    )]
    Differs {
        /// Which of the tokens, from 0.
        at: usize,
        /// The engine's token.
        got: u32,
        /// The engine's logprob.
        got_logprob: f32,
        /// The trainer's token.
        wanted: u32,
        /// The trainer's logprob.
        wanted_logprob: f32,
        /// How far logprobs may differ.
        tolerance: f32,
    },
}

impl Canary {
    /// Compares an engine's greedy answer. Logprobs may differ by `tolerance`. Tokens may part only
    /// where the trainer's first and second token were as likely; nothing after that can be compared.
    pub fn check(&self, ids: &[u32], logprobs: &[f32], tolerance: f32) -> Result<(), CanaryError> {
        let (count, lengths) = (self.ids.len(), [self.logprobs.len(), self.margins.len()]);
        if count == 0 || lengths != [count; 2] {
            return Err(CanaryError::Malformed {
                ids: count,
                logprobs: lengths[0],
                margins: lengths[1],
            });
        }
        for (at, (&got, &got_logprob)) in ids.iter().zip(logprobs).take(count).enumerate() {
            let (wanted, wanted_logprob) = (self.ids[at], self.logprobs[at]);
            // What is no number is not close.
            let close = (wanted_logprob - got_logprob).abs() <= tolerance;
            let tie = self.margins[at] <= 2.0 * tolerance;
            if !close || (wanted != got && !tie) {
                return Err(CanaryError::Differs {
                    at,
                    got,
                    got_logprob,
                    wanted,
                    wanted_logprob,
                    tolerance,
                });
            }
            if wanted != got {
                return Ok(());
            }
        }
        let got = ids.len().min(logprobs.len());
        match got < count {
            true => Err(CanaryError::Short { got, wanted: count }),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canary() -> Canary {
        Canary {
            prompt_ids: vec![1, 2],
            ids: vec![7, 8, 9],
            logprobs: vec![-0.1, -0.2, -0.3],
            margins: vec![3.0, 0.01, 2.0],
        }
    }

    #[test]
    fn the_same_tokens_with_close_logprobs_pass() {
        let close = [-0.101, -0.2, -0.299];
        assert_eq!(canary().check(&[7, 8, 9], &close, 0.01), Ok(()));
        assert_eq!(canary().check(&[7, 8, 9, 4], &[-0.1; 4], 0.3), Ok(()));
    }

    #[test]
    fn other_weights_are_told_with_the_place_and_both_logprobs() {
        let error = canary().check(&[7, 6, 9], &[-0.1, -1.5, -0.3], 0.01);
        let said = error.map_err(|e| e.to_string());
        let wanted = "token 1 is 6 with logprob -1.50000, the trainer computed 8 with -0.20000 \
                      (tolerance 0.01)";
        assert_eq!(said, Err(wanted.to_owned()));
    }

    #[test]
    fn tokens_may_part_only_where_two_were_as_likely() {
        let parted = canary().check(&[7, 6, 1], &[-0.1, -0.2, -5.0], 0.01);
        assert_eq!(parted, Ok(()));
        let parted = canary().check(&[6, 8, 9], &[-0.1, -0.2, -0.3], 0.01);
        assert!(matches!(parted, Err(CanaryError::Differs { at: 0, .. })));
    }

    #[test]
    fn an_answer_that_is_short_or_no_number_is_refused() {
        let short = CanaryError::Short { got: 1, wanted: 3 };
        assert_eq!(canary().check(&[7], &[-0.1], 0.01), Err(short));
        assert!(canary().check(&[7, 8, 9], &[f32::NAN; 3], 0.01).is_err());
        let empty = Canary::default().check(&[1], &[0.0], 1.0);
        assert!(matches!(empty, Err(CanaryError::Malformed { .. })));
    }
}
