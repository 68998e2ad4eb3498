//! A rank that trains nothing: it answers each call as the protocol has it, and its snapshots are some bytes that the
//! leader is sent before it is told of them, as a node does it.
use super::ledger::{Ledger, one_more};
use super::session::Session;
use robust_proto::manifest::to_proto;
use robust_proto::v1::node_host_client::NodeHostClient;
use robust_proto::v1::{self, call, call_reply};
use robust_shared::ids::WeightVersion;
use robust_shared::weights::{Manifest, TensorSpec};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tonic::Status;
use xxhash_rust::xxh3::xxh3_64;

/// What an update takes.
const UPDATE: Duration = Duration::from_millis(500);

pub(super) struct Rank {
    pub incarnation: u64,
    pub generation: u64,
    pub session: Session,
    pub ledger: Arc<Ledger>,
    /// What was answered, by key: a call may come again.
    pub answered: HashMap<String, v1::CallReply>,
}

impl Rank {
    /// Does a call once.
    pub async fn answer(&mut self, call: v1::Call) -> Result<v1::CallReply, Status> {
        let call_id = call.call_id;
        if let Some(known) = self.answered.get(&call.key).cloned() {
            return Ok(v1::CallReply { call_id, ..known });
        }
        let result = match call.body {
            Some(body) => Some(self.perform(body).await?),
            None => None,
        };
        let reply = v1::CallReply {
            call_id,
            result,
            ..Default::default()
        };
        self.answered.insert(call.key, reply.clone());
        Ok(reply)
    }

    async fn perform(&self, body: call::Body) -> Result<call_reply::Result, Status> {
        Ok(match body {
            call::Body::Restore(restore) => {
                let step = restore.step;
                call_reply::Result::Restore(v1::RestoreReply { step })
            }
            call::Body::OldLogprobs(old) => {
                let row = |s: &v1::Sample| v1::Floats {
                    values: vec![-0.5; s.ids.len().saturating_sub(1)],
                };
                let rows = old.samples.iter().map(row).collect();
                call_reply::Result::Logprobs(v1::LogprobsReply { rows })
            }
            call::Body::Update(_) => {
                tokio::time::sleep(UPDATE).await;
                one_more(&self.ledger.steps);
                call_reply::Result::Update(v1::UpdateReply {
                    loss: 1.0,
                    ..Default::default()
                })
            }
            call::Body::Snapshot(snapshot) => self.snapshot(snapshot.step).await?,
            call::Body::Publish(publish) => call_reply::Result::Publish(served(publish.version)?),
            call::Body::Train(_) | call::Body::OwnStep(_) => {
                return Err(Status::unimplemented("this rank is no program of a user's"));
            }
        })
    }

    /// A shard of a few bytes, which the leader keeps.
    async fn snapshot(&self, step: u64) -> Result<call_reply::Result, Status> {
        let data = step.to_le_bytes().to_vec();
        let bytes = data.len() as u64;
        let part = v1::ShardPart {
            header: Some(v1::ShardHeader {
                incarnation: self.incarnation,
                rank: 0,
                step,
                bytes,
            }),
            xxh3: Some(xxh3_64(&data)),
            data,
        };
        let parts = self.session.shown(tokio_stream::iter(vec![part]));
        let mut client = NodeHostClient::new(self.session.channel.clone());
        let kept = client.keep_shard(parts).await?.into_inner();
        Ok(call_reply::Result::Snapshot(v1::SnapshotReply {
            step,
            path: kept.path,
            bytes,
            xxh3: Some(kept.xxh3),
            generation: self.generation,
            adam_step: Some(step),
            blake3: None,
        }))
    }
}

/// A version of eight bytes.
fn served(version: u64) -> Result<v1::ServedVersion, Status> {
    let tensor = TensorSpec {
        name: "w".to_owned(),
        dtype: "F32".to_owned(),
        shape: vec![2],
        offset: 0,
        bytes: 8,
    };
    let buffer = version.to_le_bytes();
    let built = Manifest::build(WeightVersion(version), &buffer, 4, vec![tensor]);
    let built = built.map_err(|e| Status::internal(e.to_string()))?;
    let whole = std::iter::once(0..built.bytes);
    let built = built.held_by(whole.collect());
    let built = built.map_err(|e| Status::internal(e.to_string()))?;
    Ok(of_manifest(version, to_proto(&built)))
}

/// A version as whoever has it serves it.
pub(super) fn of_manifest(version: u64, manifest: v1::Manifest) -> v1::ServedVersion {
    v1::ServedVersion {
        version,
        region: Some(v1::Region {
            key: vec![1],
            bytes: manifest.bytes,
            patches: Vec::new(),
        }),
        manifest: Some(manifest),
        canary: None,
    }
}
