//! The dispatch table's calls as messages: what goes out, what comes back.
use super::gang::StepError;
use robust_proto::manifest;
use robust_proto::v1::{self, call, call_reply};
use robust_shared::batch::{Batch, BatchError, Jagged};
use robust_shared::dispatch::WorkerCall;
use robust_shared::dispatch::calls::{
    OldLogprobs, OwnFigures, OwnStep, Patches, Peer, Publish, Published, Region, Restore, Served,
    Shard, Snapshot, Train, Update, UpdateMetrics, columns,
};
use robust_shared::ids::{Generation, Step};

/// A call that can go over the link.
pub(super) trait WireCall: WorkerCall {
    /// One rank's arguments as a message.
    fn body(args: Self::Args) -> Result<call::Body, BatchError>;
    /// A rank's reply; none when it answers another call.
    fn reply(result: call_reply::Result) -> Option<Self::Reply>;
}

impl WireCall for Restore {
    fn body(args: Self) -> Result<call::Body, BatchError> {
        Ok(call::Body::Restore(v1::Restore {
            step: args.step.0,
            shards: args.shards.iter().map(shard_to_wire).collect(),
            peers: args.peers.iter().map(peer_to_wire).collect(),
            own: args.own,
        }))
    }

    fn reply(result: call_reply::Result) -> Option<Step> {
        match result {
            call_reply::Result::Restore(reply) => Some(Step(reply.step)),
            _ => None,
        }
    }
}

impl WireCall for OldLogprobs {
    fn body(args: Self) -> Result<call::Body, BatchError> {
        let samples = samples(&args.samples)?;
        Ok(call::Body::OldLogprobs(v1::OldLogprobs {
            step: args.step.0,
            samples,
        }))
    }

    fn reply(result: call_reply::Result) -> Option<Vec<Vec<f32>>> {
        match result {
            call_reply::Result::Logprobs(reply) => {
                Some(reply.rows.into_iter().map(|row| row.values).collect())
            }
            _ => None,
        }
    }
}

impl WireCall for Update {
    fn body(args: Self) -> Result<call::Body, BatchError> {
        Ok(call::Body::Update(v1::Update {
            step: args.step.0,
            samples: samples(&args.samples)?,
            batch_trainable_tokens: args.batch_trainable_tokens,
        }))
    }

    fn reply(result: call_reply::Result) -> Option<UpdateMetrics> {
        figures(result)
    }
}

impl WireCall for Train {
    fn body(args: Self) -> Result<call::Body, BatchError> {
        let Update {
            step,
            samples: batch,
            batch_trainable_tokens,
        } = args.update;
        let mut samples = samples(&batch)?;
        let rewards = batch.f64s(columns::REWARD)?;
        let trajectories = batch.u64s(columns::TRAJECTORY)?;
        for (sample, (reward, trajectory)) in
            samples.iter_mut().zip(rewards.iter().zip(trajectories))
        {
            (sample.reward, sample.trajectory) = (*reward, *trajectory);
        }
        Ok(call::Body::Train(v1::Train {
            step: step.0,
            samples,
            batch_trainable_tokens,
        }))
    }

    fn reply(result: call_reply::Result) -> Option<UpdateMetrics> {
        figures(result)
    }
}

impl WireCall for OwnStep {
    fn body(args: Self) -> Result<call::Body, BatchError> {
        Ok(call::Body::OwnStep(v1::OwnStep { step: args.step.0 }))
    }

    fn reply(result: call_reply::Result) -> Option<Option<OwnFigures>> {
        let call_reply::Result::OwnStep(reply) = result else {
            return None;
        };
        Some((!reply.over).then(|| OwnFigures {
            update: metrics(&reply.figures.unwrap_or_default()),
            reward: reply.reward,
            tokens: reply.tokens,
        }))
    }
}

fn figures(result: call_reply::Result) -> Option<UpdateMetrics> {
    match result {
        call_reply::Result::Update(reply) => Some(metrics(&reply)),
        _ => None,
    }
}

fn metrics(reply: &v1::UpdateReply) -> UpdateMetrics {
    UpdateMetrics {
        loss: reply.loss,
        grad_norm: reply.grad_norm,
        clip_fraction: reply.clip_fraction,
        entropy: reply.entropy,
        kl: reply.kl,
    }
}

impl WireCall for Snapshot {
    fn body(args: Self) -> Result<call::Body, BatchError> {
        Ok(call::Body::Snapshot(v1::Snapshot { step: args.step.0 }))
    }

    fn reply(result: call_reply::Result) -> Option<Shard> {
        match result {
            call_reply::Result::Snapshot(reply) => Some(shard_from_wire(&reply)),
            _ => None,
        }
    }
}

impl WireCall for Publish {
    fn body(args: Self) -> Result<call::Body, BatchError> {
        Ok(call::Body::Publish(v1::Publish {
            version: args.version.0,
        }))
    }

    fn reply(result: call_reply::Result) -> Option<Served> {
        let call_reply::Result::Publish(served) = result else {
            return None;
        };
        // One that contradicts itself is no answer: the call fails and the gang is restarted.
        let manifest = manifest::from_proto(&served.manifest?).ok()?;
        let region = served.region?;
        Some(Served {
            manifest,
            region: Region {
                key: region.key,
                bytes: region.bytes,
                patches: region.patches.into_iter().map(patches).collect(),
            },
            canary: served.canary.as_ref().map(manifest::canary_from_proto),
        })
    }
}

/// Rows as messages. Columns that the call has no use for are not there and stay empty.
fn samples(batch: &Batch) -> Result<Vec<v1::Sample>, BatchError> {
    let ids = batch.u32_tokens(columns::IDS)?;
    let trainable = batch.bool_tokens(columns::TRAINABLE)?;
    batch.require_aligned(columns::TRAINABLE, columns::IDS, 0)?;
    let logprobs = optional(batch, columns::ROLLOUT_LOGPROBS, 0)?;
    let old = optional(batch, columns::OLD_LOGPROBS, 1)?;
    let advantages = match batch.column(columns::ADVANTAGE) {
        Ok(_) => Some(batch.f64s(columns::ADVANTAGE)?),
        Err(_) => None,
    };
    let row = |column: Option<&Jagged<f32>>, at| column.map_or(vec![], |c| c.row(at).to_vec());
    let sample = |at| v1::Sample {
        ids: ids.row(at).to_vec(),
        trainable: trainable.row(at).to_vec(),
        rollout_logprobs: row(logprobs, at),
        advantage: advantages.and_then(|a| a.get(at).copied()).unwrap_or(0.0),
        old_logprobs: row(old, at),
        ..v1::Sample::default()
    };
    Ok((0..batch.len()).map(sample).collect())
}

fn optional<'a>(
    batch: &'a Batch,
    name: &str,
    shorter_by: usize,
) -> Result<Option<&'a Jagged<f32>>, BatchError> {
    if batch.column(name).is_err() {
        return Ok(None);
    }
    batch.require_aligned(name, columns::IDS, shorter_by)?;
    batch.f32_tokens(name).map(Some)
}

/// A shard as a message.
pub(super) fn shard_to_wire(shard: &Shard) -> v1::SnapshotReply {
    let Shard {
        step,
        path,
        bytes,
        xxh3,
        generation,
        adam_step,
    } = shard;
    v1::SnapshotReply {
        step: step.0,
        path: path.clone(),
        bytes: *bytes,
        xxh3: *xxh3,
        generation: generation.0,
        adam_step: *adam_step,
        blake3: None,
    }
}

/// A shard from a message.
pub(crate) fn shard_from_wire(shard: &v1::SnapshotReply) -> Shard {
    let v1::SnapshotReply {
        step,
        path,
        bytes,
        xxh3,
        generation,
        adam_step,
        // For the leader alone, who verifies what comes back by it.
        blake3: _,
    } = shard;
    Shard {
        step: Step(*step),
        path: path.clone(),
        bytes: *bytes,
        xxh3: *xxh3,
        generation: Generation(*generation),
        adam_step: *adam_step,
    }
}

fn region_to_wire(region: &Region) -> v1::Region {
    v1::Region {
        key: region.key.clone(),
        bytes: region.bytes,
        patches: region.patches.iter().map(patches_to_wire).collect(),
    }
}

fn patches_to_wire(patches: &Patches) -> v1::Patches {
    v1::Patches {
        base: patches.base.clone(),
        key: patches.key.clone(),
    }
}

fn patches(patches: v1::Patches) -> Patches {
    Patches {
        base: patches.base,
        key: patches.key,
    }
}

fn peer_to_wire(peer: &Peer) -> v1::Peer {
    v1::Peer {
        rank: peer.rank,
        incarnation: peer.incarnation.0,
        transport_addr: peer.transport_addr.clone(),
        gradients: peer.gradients.iter().map(region_to_wire).collect(),
        master_port: peer.master_port,
    }
}

/// What one rank serves, as pullers get it.
pub(super) fn served_to_wire(published: &Published, region: &Region) -> v1::ServedVersion {
    let manifest = &published.manifest;
    v1::ServedVersion {
        version: manifest.version.0,
        manifest: Some(manifest::to_proto(manifest)),
        region: Some(region_to_wire(region)),
        canary: published.canary.as_ref().map(manifest::canary_to_proto),
    }
}

impl From<BatchError> for StepError {
    fn from(error: BatchError) -> Self {
        StepError::Batch(error)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn columns_that_do_not_fit_the_tokens_are_refused_by_name() {
        let ids: Jagged<u32> = [vec![1, 2, 3]].iter().collect();
        let trainable: Jagged<bool> = [vec![false, true, true]].iter().collect();
        let old: Jagged<f32> = [vec![0.5_f32]].iter().collect();
        let batch = Batch::new(1)
            .with(columns::IDS, ids)
            .and_then(|b| b.with(columns::TRAINABLE, trainable))
            .unwrap();
        assert_eq!(samples(&batch).unwrap()[0].ids, [1, 2, 3]);
        let batch = batch.with(columns::OLD_LOGPROBS, old).unwrap();
        assert!(
            samples(&batch)
                .unwrap_err()
                .to_string()
                .contains("old_logprobs")
        );
    }

    #[test]
    fn a_reply_to_another_call_is_no_reply() {
        let restored = call_reply::Result::Restore(v1::RestoreReply { step: 1 });
        assert!(<Snapshot as WireCall>::reply(restored.clone()).is_none());
        assert_eq!(<Restore as WireCall>::reply(restored), Some(Step(1)));
    }
}
