//! What the gang is asked to do, each as one future whose outcome goes to the driver.
use super::collate::{OLDEST_VERSION, collate};
use super::gang::{Gang, StepError, Trains};
use super::old::{Rows, old_logprobs};
use super::restore::Origin;
use super::wire::{served_to_wire, shard_to_wire};
use crate::snapshots::SnapshotShards;
use crate::store::Store;
use robust_proto::v1;
use robust_shared::batch::{Batch, Jagged, Meta};
use robust_shared::core::{CallFault, Health, StepMetrics};
use robust_shared::dispatch::calls::{
    OwnFigures, OwnStep, Publish, Snapshot, Train, Update, UpdateMetrics, columns,
};
use robust_shared::grpo::{advantages_by, flat_groups};
use robust_shared::ids::{Generation, Incarnation, Step, TrajectoryId, WeightVersion};

/// How the gang's work ended.
#[derive(Debug)]
pub enum StepOutcome {
    /// All ranks are at the step.
    Restored {
        /// Which gang.
        generation: Generation,
        /// The step.
        step: Step,
        /// What the state came from, and what else was tried.
        from: Origin,
    },
    /// Old logprobs of a part of the step's batch.
    Prepared {
        /// Which gang.
        generation: Generation,
        /// The step.
        step: Step,
        /// The values.
        rows: Rows,
    },
    /// The step is done and its snapshot complete.
    Done {
        /// Which gang.
        generation: Generation,
        /// The step.
        step: Step,
        /// Its figures.
        metrics: StepMetrics,
        /// Its snapshot.
        snapshot: SnapshotShards,
    },
    /// The gang had nothing left to do, and its programs ended.
    Over {
        /// Which gang.
        generation: Generation,
    },
    /// All ranks serve the version.
    Published {
        /// Which gang.
        generation: Generation,
        /// The version.
        version: WeightVersion,
        /// Its size.
        bytes: u64,
        /// The manifest's digest.
        digest: String,
        /// What each rank serves.
        served: Vec<(Incarnation, v1::ServedVersion)>,
    },
    /// It could not be done.
    Failed {
        /// Which gang.
        generation: Generation,
        /// The step (or version).
        step: Step,
        /// Who reported it, if one rank did.
        rank: Option<Incarnation>,
        /// What kind of failure it was.
        fault: CallFault,
        /// Why.
        reason: String,
    },
}

impl StepOutcome {
    /// The outcome of a future that may fail.
    pub fn of(generation: Generation, step: Step, result: Result<Self, StepError>) -> Self {
        result.unwrap_or_else(|e| Self::Failed {
            generation,
            step,
            rank: e.rank(),
            fault: e.fault(),
            reason: e.to_string(),
        })
    }
}

/// One training step: batch, old logprobs (as far as they are not known), advantages, update,
/// snapshot.
pub async fn train(
    gang: Gang,
    store: Store,
    step: Step,
    trajectories: Vec<TrajectoryId>,
    known: Rows,
) -> Result<StepOutcome, StepError> {
    let generation = gang.generation;
    let learned = learn(&gang, &store, step, &trajectories, known).await?;
    let Some(Learned { metrics, snapshot }) = learned else {
        return Ok(StepOutcome::Over { generation });
    };
    Ok(StepOutcome::Done {
        generation,
        step,
        metrics,
        snapshot,
    })
}

/// What a step made.
pub(super) struct Learned {
    pub metrics: StepMetrics,
    pub snapshot: SnapshotShards,
}

/// The part of a step that the ranks compute, from its batch to its snapshot; none: there was nothing left
/// to do for them.
pub(super) async fn learn(
    gang: &Gang,
    store: &Store,
    step: Step,
    trajectories: &[TrajectoryId],
    known: Rows,
) -> Result<Option<Learned>, StepError> {
    let metrics = match gang.trains {
        Trains::OwnLoop => match gang.call::<OwnStep>(step.0, OwnStep { step }).await? {
            Some(figures) => of_own_loop(figures),
            None => return Ok(None),
        },
        Trains::BuiltIn | Trains::Program => {
            let batch = load(store.clone(), trajectories.to_vec()).await?;
            learn_batch(gang, step, (trajectories, batch), known).await?
        }
    };
    let shards = gang.call::<Snapshot>(step.0, Snapshot { step }).await?;
    let generation = gang.generation;
    let shards = shards.iter().map(shard_to_wire).collect();
    let snapshot = SnapshotShards {
        generation,
        shards,
        homes: Vec::new(),
    };
    Ok(Some(Learned { metrics, snapshot }))
}

/// How old the rollouts were that it learned from only the program knows.
fn of_own_loop(figures: OwnFigures) -> StepMetrics {
    StepMetrics {
        reward: figures.reward,
        loss: figures.update.loss,
        grad_norm: figures.update.grad_norm,
        tokens: figures.tokens,
        staleness: 0,
        health: told(&figures.update),
    }
}

/// What the trainer says of it.
fn told(figures: &UpdateMetrics) -> Health {
    Health {
        clip_fraction: figures.clip_fraction,
        entropy: figures.entropy,
        kl: figures.kl,
        ..Health::default()
    }
}

/// What is known of a batch before anybody trains on it.
fn of_batch(rewards: &[f64], groups: &[u32], trainable: &Jagged<bool>) -> Health {
    let length = |row: &[bool]| row.iter().filter(|generated| **generated).count() as u64;
    let lengths: Vec<u64> = trainable.rows().map(length).collect();
    let (groups, flat) = flat_groups(rewards, groups);
    let mean = || lengths.iter().sum::<u64>() as f64 / lengths.len() as f64;
    Health {
        groups: Some(groups),
        flat_groups: Some(flat),
        mean_length: (!lengths.is_empty()).then(mean),
        longest: lengths.iter().max().copied(),
        ..Health::default()
    }
}

async fn learn_batch(
    gang: &Gang,
    step: Step,
    (trajectories, mut batch): (&[TrajectoryId], Batch),
    known: Rows,
) -> Result<StepMetrics, StepError> {
    if gang.trains == Trains::BuiltIn {
        let old = old_logprobs(gang, step, trajectories, &batch, known).await?;
        batch.insert(columns::OLD_LOGPROBS, old)?;
    }
    let rewards = batch.f64s(columns::REWARD)?.to_vec();
    // A group without those that were set aside is smaller than the others.
    let groups: Vec<u32> = trajectories.iter().map(|id| id.group).collect();
    let known = of_batch(&rewards, &groups, batch.bool_tokens(columns::TRAINABLE)?);
    batch.insert(columns::ADVANTAGE, advantages_by(&rewards, &groups)?)?;
    let oldest = match batch.meta(OLDEST_VERSION) {
        Some(Meta::U64(version)) => *version,
        _ => 0,
    };
    let update = Update::new(step, batch)?;
    let tokens = update.batch_trainable_tokens;
    let figures = match gang.trains {
        Trains::BuiltIn => gang.call::<Update>(step.0, update).await?,
        _ => gang.call::<Train>(step.0, Train { update }).await?,
    };
    Ok(StepMetrics {
        reward: rewards.iter().sum::<f64>() / rewards.len().max(1) as f64,
        loss: figures.loss,
        grad_norm: figures.grad_norm,
        tokens,
        // The newest weights a rollout can have for this step are those of the step before.
        staleness: step.0.saturating_sub(1).saturating_sub(oldest),
        health: Health {
            clip_fraction: figures.clip_fraction,
            entropy: figures.entropy,
            kl: figures.kl,
            ..known
        },
    })
}

pub(super) async fn load(
    store: Store,
    trajectories: Vec<TrajectoryId>,
) -> Result<Batch, StepError> {
    let reading = tokio::task::spawn_blocking(move || {
        let read = |id: TrajectoryId| Ok((id, store.trajectory(id)?));
        let stored: Result<Vec<_>, StepError> = trajectories.into_iter().map(read).collect();
        Ok(collate(&stored?)?)
    });
    reading
        .await
        .unwrap_or_else(|_| Err(abandoned("reading the batch")))
}

pub(super) fn abandoned(what: &str) -> StepError {
    super::calls::CallError::Abandoned {
        key: what.to_owned(),
    }
    .into()
}

/// Lets all ranks serve a version.
pub async fn publish(gang: Gang, version: WeightVersion) -> Result<StepOutcome, StepError> {
    let published = gang.call::<Publish>(version.0, Publish { version }).await?;
    let manifest = &published.manifest;
    let served = gang
        .ranks
        .iter()
        .zip(&published.regions)
        .map(|(rank, region)| (*rank, served_to_wire(&published, region)))
        .collect();
    Ok(StepOutcome::Published {
        generation: gang.generation,
        version,
        bytes: manifest.bytes,
        digest: manifest.digest_hex(),
        served,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_tells_its_flat_groups_and_lengths_before_anybody_trains_on_it() {
        let mut trainable = Jagged::default();
        trainable.push(&[false, true, true]);
        trainable.push(&[false, true]);
        trainable.push(&[false, true, false, true, true, true]);
        let known = of_batch(&[1.0, 1.0, 0.0], &[0, 0, 1], &trainable);
        let expected = Health {
            groups: Some(2),
            flat_groups: Some(2),
            mean_length: Some(7.0 / 3.0),
            longest: Some(4),
            ..Health::default()
        };
        assert_eq!(known, expected);
        let differs = of_batch(&[1.0, 0.0], &[3, 3], &trainable);
        assert_eq!((differs.groups, differs.flat_groups), (Some(1), Some(0)));
        let none = of_batch(&[], &[], &Jagged::default());
        assert_eq!(
            (none.groups, none.mean_length, none.longest),
            (Some(0), None, None)
        );
    }
}
