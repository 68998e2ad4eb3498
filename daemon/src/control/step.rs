//! What the gang is asked to do, each as one future whose outcome goes to the driver.
use super::collate::{OLDEST_VERSION, collate};
use super::gang::{Gang, StepError};
use super::old::{Rows, old_logprobs};
use super::wire::{served_to_wire, shard_from_wire, shard_to_wire};
use crate::driver::SnapshotShards;
use crate::store::Store;
use robust_ckpt::newest_at_most;
use robust_proto::v1;
use robust_shared::batch::{Batch, Meta};
use robust_shared::core::{CallFault, StepMetrics};
use robust_shared::dispatch::calls::{Peer, Publish, Restore, Shard, Snapshot, Update, columns};
use robust_shared::grpo::advantages;
use robust_shared::ids::{Generation, Incarnation, Step, TrajectoryId, WeightVersion};
use std::path::{Path, PathBuf};

/// How the gang's work ended.
#[derive(Debug)]
pub enum StepOutcome {
    /// All ranks are at the step.
    Restored {
        /// Which gang.
        generation: Generation,
        /// The step.
        step: Step,
        /// What the state came from, and what else was tried; a sentence.
        from: String,
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
    group_size: usize,
    known: Rows,
) -> Result<StepOutcome, StepError> {
    let mut batch = load(store, trajectories.clone()).await?;
    let old = old_logprobs(&gang, step, &trajectories, &batch, known).await?;
    batch.insert(columns::OLD_LOGPROBS, old)?;
    let rewards = batch.f64s(columns::REWARD)?.to_vec();
    batch.insert(columns::ADVANTAGE, advantages(&rewards, group_size)?)?;
    let oldest = match batch.meta(OLDEST_VERSION) {
        Some(Meta::U64(version)) => *version,
        _ => 0,
    };
    let update = Update::new(step, batch)?;
    let tokens = update.batch_trainable_tokens;
    let figures = gang.call::<Update>(step.0, update).await?;
    let shards = gang.call::<Snapshot>(step.0, Snapshot { step }).await?;
    let generation = gang.generation;
    let metrics = StepMetrics {
        reward: rewards.iter().sum::<f64>() / rewards.len().max(1) as f64,
        loss: figures.loss,
        grad_norm: figures.grad_norm,
        tokens,
        // The newest weights a rollout can have for this step are those of the step before.
        staleness: step.0.saturating_sub(1).saturating_sub(oldest),
    };
    let shards = shards.iter().map(shard_to_wire).collect();
    let snapshot = SnapshotShards { generation, shards };
    Ok(StepOutcome::Done {
        generation,
        step,
        metrics,
        snapshot,
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

fn abandoned(what: &str) -> StepError {
    super::calls::CallError::Abandoned {
        key: what.to_owned(),
    }
    .into()
}

/// Where a step's state may be.
#[derive(Clone, Debug)]
pub struct RestoreFrom {
    /// Its snapshot in shared memory, if one is known.
    pub snapshot: Option<SnapshotShards>,
    /// The folder of checkpoints.
    pub checkpoints: PathBuf,
}

/// Brings all ranks to a committed step. Only this very step will do: its version is published and
/// its trajectories are consumed (I-3, I-4).
pub async fn restore(
    gang: Gang,
    step: Step,
    from: RestoreFrom,
    peers: Vec<Peer>,
) -> Result<StepOutcome, StepError> {
    let generation = gang.generation;
    let restored = |from: String| StepOutcome::Restored {
        generation,
        step,
        from,
    };
    let ask = |shards: Vec<Shard>| {
        let whole = Restore {
            step,
            shards,
            peers: peers.clone(),
        };
        gang.call::<Restore>(step.0, whole)
    };
    if step.0 == 0 {
        ask(Vec::new()).await?;
        return Ok(restored("the initial weights".to_owned()));
    }
    let mut tried = Vec::new();
    match from.snapshot {
        None => tried.push("no snapshot of it is known".to_owned()),
        Some(snapshot)
            if snapshot
                .shards
                .iter()
                .any(|s| !Path::new(&s.path).is_file()) =>
        {
            tried.push("its snapshot is not in memory any more".to_owned());
        }
        Some(snapshot) => match ask(snapshot.shards.iter().map(shard_from_wire).collect()).await {
            Ok(_) => return Ok(restored("the snapshot in memory".to_owned())),
            Err(error) => tried.push(format!("its snapshot: {error}")),
        },
    }
    match checkpoint_of(step, from.checkpoints).await? {
        Ok(shards) => {
            ask(shards).await?;
            tried.push("restored from its checkpoint on disk".to_owned());
            Ok(restored(tried.join("; ")))
        }
        Err(reasons) => {
            tried.extend(reasons);
            Err(StepError::NothingToRestore {
                step: step.0,
                tried,
            })
        }
    }
}

/// The shards of this step's checkpoint, or why there are none.
async fn checkpoint_of(
    step: Step,
    dir: PathBuf,
) -> Result<Result<Vec<Shard>, Vec<String>>, StepError> {
    let looking = tokio::task::spawn_blocking(move || newest_at_most(&dir, step));
    let found = match looking
        .await
        .map_err(|_| abandoned("looking for checkpoints"))?
    {
        Ok(found) => found,
        Err(error) => return Ok(Err(vec![format!("checkpoints cannot be read: {error}")])),
    };
    let mut reasons = found.rejected;
    match found.checkpoint {
        Some(checkpoint) if checkpoint.step == step => Ok(Ok(checkpoint
            .shards
            .iter()
            .map(|shard| Shard {
                step,
                path: shard.path.display().to_string(),
                bytes: shard.bytes,
                xxh3: Some(shard.xxh3),
                generation: checkpoint.generation,
                adam_step: checkpoint.adam_step,
            })
            .collect())),
        Some(older) => {
            reasons.push(format!("the newest checkpoint is of step {}", older.step));
            Ok(Err(reasons))
        }
        None => {
            reasons.push("there is no complete checkpoint".to_owned());
            Ok(Err(reasons))
        }
    }
}

/// Lets all ranks serve a version.
pub async fn publish(gang: Gang, version: WeightVersion) -> Result<StepOutcome, StepError> {
    let published = gang.call::<Publish>(version.0, Publish { version }).await?;
    let manifest = &published.manifest;
    let served = gang
        .ranks
        .iter()
        .zip(&published.regions)
        .map(|(rank, region)| (*rank, served_to_wire(manifest, region)))
        .collect();
    Ok(StepOutcome::Published {
        generation: gang.generation,
        version,
        bytes: manifest.bytes,
        digest: manifest.digest_hex(),
        served,
    })
}
