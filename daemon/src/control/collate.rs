//! From stored trajectories to the batch a step trains on.
use crate::store::StoredTrajectory;
use robust_shared::batch::{Batch, BatchError, Jagged, Meta};
use robust_shared::dispatch::calls::columns;
use robust_shared::ids::TrajectoryId;

/// Metadata of the batch: the oldest weights that produced any of it.
pub const OLDEST_VERSION: &str = "oldest_version";

/// Why trajectories make no batch.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CollateError {
    /// It is not in the store.
    #[error("trajectory {0} is not in the store")]
    Missing(TrajectoryId),
    /// It has no end.
    #[error("trajectory {0} is not finished")]
    Unfinished(TrajectoryId),
    /// Tokens without logprobs, or the other way round.
    #[error("trajectory {trajectory}, turn {turn}: {ids} tokens with {logprobs} logprobs")]
    Logprobs {
        /// Which.
        trajectory: TrajectoryId,
        /// Its turn.
        turn: u32,
        /// Tokens of the span.
        ids: usize,
        /// Logprobs of the span.
        logprobs: usize,
    },
    /// A column did not fit.
    #[error(transparent)]
    Batch(#[from] BatchError),
}

#[derive(Default)]
struct Tokens {
    ids: Vec<u32>,
    trainable: Vec<bool>,
    logprobs: Vec<f32>,
}

impl Tokens {
    fn given(&mut self, ids: &[u32]) {
        self.ids.extend_from_slice(ids);
        self.trainable.resize(self.ids.len(), false);
        self.logprobs.resize(self.ids.len(), 0.0);
    }

    fn generated(&mut self, ids: &[u32], logprobs: &[f32]) {
        self.ids.extend_from_slice(ids);
        self.trainable.resize(self.ids.len(), true);
        self.logprobs.extend_from_slice(logprobs);
    }
}

/// One row per trajectory, in the order given.
pub fn collate(
    trajectories: &[(TrajectoryId, Option<StoredTrajectory>)],
) -> Result<Batch, CollateError> {
    let mut ids = Jagged::default();
    let mut trainable = Jagged::default();
    let mut logprobs = Jagged::default();
    let (mut rewards, mut keys, mut oldest) = (Vec::new(), Vec::new(), u64::MAX);
    for (id, stored) in trajectories {
        let stored = stored.as_ref().ok_or(CollateError::Missing(*id))?;
        let end = stored
            .finished
            .as_ref()
            .ok_or(CollateError::Unfinished(*id))?;
        let tokens = tokens(*id, stored)?;
        ids.push(&tokens.ids);
        trainable.push(&tokens.trainable);
        logprobs.push(&tokens.logprobs);
        rewards.push(end.reward);
        keys.push(id.key());
        oldest = oldest.min(end.oldest_version);
    }
    let mut batch = Batch::new(trajectories.len())
        .with(columns::IDS, ids)?
        .with(columns::TRAINABLE, trainable)?
        .with(columns::ROLLOUT_LOGPROBS, logprobs)?
        .with(columns::REWARD, rewards)?
        .with(columns::TRAJECTORY, keys)?;
    batch.set_meta(
        OLDEST_VERSION,
        Meta::U64(if oldest == u64::MAX { 0 } else { oldest }),
    );
    Ok(batch)
}

fn tokens(trajectory: TrajectoryId, stored: &StoredTrajectory) -> Result<Tokens, CollateError> {
    let mut tokens = Tokens::default();
    tokens.given(&stored.prompt_ids);
    for turn in &stored.turns {
        for span in &turn.spans {
            let (ids, logprobs) = (span.ids.len(), span.logprobs.len());
            if ids != logprobs {
                let turn = turn.index;
                return Err(CollateError::Logprobs {
                    trajectory,
                    turn,
                    ids,
                    logprobs,
                });
            }
            tokens.generated(&span.ids, &span.logprobs);
        }
        tokens.given(&turn.tool_ids);
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::Finish;
    use robust_proto::v1::{Span, Turn};

    const T: TrajectoryId = TrajectoryId {
        batch: 1,
        group: 0,
        member: 0,
    };

    fn stored() -> StoredTrajectory {
        let span = |ids: &[u32], version| Span {
            ids: ids.to_vec(),
            logprobs: ids.iter().map(|&id| -(id as f32)).collect(),
            version,
        };
        StoredTrajectory {
            running: Vec::new(),
            prompt_ids: vec![1, 2],
            turns: vec![
                Turn {
                    spans: vec![span(&[3], 4), span(&[5], 5)],
                    tool_ids: vec![6],
                    ..Turn::default()
                },
                Turn {
                    index: 1,
                    spans: vec![span(&[7], 5)],
                    ..Turn::default()
                },
            ],
            finished: Some(Finish {
                reward: 1.0,
                oldest_version: 4,
                turns: 2,
                ..Finish::default()
            }),
            consumed_by: None,
        }
    }

    #[test]
    fn only_generated_tokens_are_trained_on() {
        let batch = collate(&[(T, Some(stored()))]).unwrap();
        assert_eq!(
            batch.u32_tokens(columns::IDS).unwrap().row(0),
            [1, 2, 3, 5, 6, 7]
        );
        assert_eq!(
            batch.bool_tokens(columns::TRAINABLE).unwrap().row(0),
            [false, false, true, true, false, true]
        );
        assert_eq!(
            batch.f32_tokens(columns::ROLLOUT_LOGPROBS).unwrap().row(0),
            [0.0, 0.0, -3.0, -5.0, 0.0, -7.0]
        );
        assert_eq!(batch.meta(OLDEST_VERSION), Some(&Meta::U64(4)));
    }

    #[test]
    fn a_trajectory_that_is_missing_unfinished_or_torn_is_named() {
        assert_eq!(collate(&[(T, None)]), Err(CollateError::Missing(T)));
        let mut unfinished = stored();
        unfinished.finished = None;
        assert_eq!(
            collate(&[(T, Some(unfinished))]),
            Err(CollateError::Unfinished(T))
        );
        let mut torn = stored();
        torn.turns[1].spans[0].logprobs.clear();
        assert_eq!(
            collate(&[(T, Some(torn))]).unwrap_err().to_string(),
            "trajectory 1.0.0, turn 1: 1 tokens with 0 logprobs"
        );
    }
}
