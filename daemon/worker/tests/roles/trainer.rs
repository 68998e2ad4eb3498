//! A gang of two ranks.

use std::path::Path;

use robust_proto::manifest::to_proto;
use robust_proto::v1::call::Body;
use robust_proto::v1::call_reply::Result as Answer;
use robust_proto::v1::host_message::Body as Down;
use robust_proto::v1::{
    Call, CallReply, Hello, Manifest, OldLogprobs, Peer, Publish, Restore, Sample, Shutdown,
    Snapshot, SnapshotReply, Update,
};
use robust_role::LinkEnd;
use robust_shared::ids::WeightVersion;
use robust_shared::weights;
use robust_worker::manifest::tensor_specs;
use robust_worker::model::adam::{Adam, AdamConfig};
use robust_worker::model::grpo::{self, GrpoConfig, TrainBatch, TrainSample};
use robust_worker::model::qwen3::Qwen3;
use robust_worker::trainer;
use tch::Tensor;
use xxhash_rust::xxh3::xxh3_64;

use super::fixture::{Running, args, model};
use host_fake::FakeHost;

const RANKS: u64 = 2;

pub struct Gang<'a> {
    pub host: &'a FakeHost,
    generation: u64,
    pub ranks: Vec<(u64, Hello, Running)>,
    next_call: u64,
}

pub fn gang<'a>(folder: &Path, host: &'a FakeHost, generation: u64) -> Gang<'a> {
    let start = |rank: u64| {
        let incarnation = generation * 10 + rank;
        let mut args = args(folder, host, rank as u32, incarnation);
        args.generation = generation;
        let running = Running::start(args, trainer::run);
        (incarnation, host.hello(incarnation), running)
    };
    let ranks = (0..RANKS).map(start).collect();
    Gang {
        host,
        generation,
        ranks,
        next_call: 0,
    }
}

impl Gang<'_> {
    /// Sends a call to all ranks, then collects the answers in rank order.
    pub fn call(&mut self, key: &str, body: impl Fn(u64) -> Body) -> Vec<CallReply> {
        let generation = self.generation;
        let mut ids = Vec::new();
        for (rank, (incarnation, ..)) in self.ranks.iter().enumerate() {
            self.next_call += 1;
            let (call_id, key) = (self.next_call, format!("{key}/{generation}"));
            let body = Some(body(rank as u64));
            self.host.send(
                *incarnation,
                Down::Call(Call {
                    call_id,
                    key,
                    generation,
                    body,
                }),
            );
            ids.push((*incarnation, call_id));
        }
        // Answers of several ranks come in any order.
        let mut replies = vec![None; ids.len()];
        while replies.iter().any(Option::is_none) {
            let (from, reply) = self.host.wait("replies", |from, up| match up {
                robust_proto::v1::role_message::Body::Reply(reply) => Some((from, reply)),
                _ => None,
            });
            let rank = ids
                .iter()
                .position(|id| *id == (from, reply.call_id))
                .unwrap();
            replies[rank] = Some(reply);
        }
        replies.into_iter().flatten().collect()
    }

    fn peers(&self) -> Vec<Peer> {
        let peer = |(rank, (incarnation, hello, _)): (usize, &(u64, Hello, Running))| Peer {
            rank: rank as u32,
            incarnation: *incarnation,
            transport_addr: hello.transport_addr.clone(),
            gradients: hello.gradients.clone(),
            ..Default::default()
        };
        self.ranks.iter().enumerate().map(peer).collect()
    }

    pub fn restore(&mut self, step: u64, shards: Vec<SnapshotReply>) -> Vec<CallReply> {
        let peers = self.peers();
        self.call(&format!("restore/{step}"), |_| {
            Body::Restore(Restore {
                step,
                shards: shards.clone(),
                peers: peers.clone(),
                own: false,
            })
        })
    }

    /// Old logprobs and update; every rank's answer to the update.
    pub fn train(&mut self, step: u64) -> Vec<CallReply> {
        let shares: Vec<Vec<Sample>> = (0..RANKS).map(|rank| share(step, rank)).collect();
        let old = self.call(&format!("old/{step}"), |rank| {
            let samples = shares[rank as usize].clone();
            Body::OldLogprobs(OldLogprobs { step, samples })
        });
        let mut filled = shares;
        for (share, reply) in filled.iter_mut().zip(old) {
            let Some(Answer::Logprobs(reply)) = reply.result else {
                panic!("{}", reply.error)
            };
            for (sample, row) in share.iter_mut().zip(reply.rows) {
                sample.old_logprobs = row.values;
            }
        }
        self.call(&format!("update/{step}"), |rank| {
            let samples = filled[rank as usize].clone();
            Body::Update(Update {
                step,
                samples,
                batch_trainable_tokens: tokens(step),
            })
        })
    }

    fn snapshot(&mut self, step: u64) -> Vec<SnapshotReply> {
        let replies = self.call(&format!("snapshot/{step}"), |_| {
            Body::Snapshot(Snapshot { step })
        });
        let shard = |reply: CallReply| match reply.result {
            Some(Answer::Snapshot(shard)) => shard,
            _ => panic!("{}", reply.error),
        };
        replies.into_iter().map(shard).collect()
    }

    /// The manifest that all ranks publish.
    pub fn publish(&mut self, version: u64) -> Manifest {
        let replies = self.call(&format!("publish/{version}"), |_| {
            Body::Publish(Publish { version })
        });
        let manifest = |reply: CallReply| match reply.result {
            Some(Answer::Publish(served)) => served.manifest.unwrap(),
            _ => panic!("{}", reply.error),
        };
        let mut manifests: Vec<Manifest> = replies.into_iter().map(manifest).collect();
        let first = manifests.remove(0);
        assert!(
            manifests.iter().all(|other| *other == first),
            "the ranks differ"
        );
        first
    }

    pub fn end(self) {
        for (incarnation, _, running) in self.ranks {
            self.host.send(incarnation, Down::Shutdown(Shutdown {}));
            assert_eq!(running.end(), LinkEnd::Shutdown);
        }
    }
}

/// A rank's samples of a step: prompts of different length with answers of different length.
fn share(step: u64, rank: u64) -> Vec<Sample> {
    let sample = |at: u64| {
        let length = 8 + (step + rank * 3 + at * 2) % 7;
        let ids: Vec<u32> = (0..length)
            .map(|i| ((i * 5 + at * 7 + rank * 11 + step) % 24) as u32)
            .collect();
        Sample {
            trainable: (0..length).map(|i| i >= 4).collect(),
            rollout_logprobs: vec![0.0; ids.len()],
            advantage: if (at + rank).is_multiple_of(2) {
                1.0
            } else {
                -0.7
            },
            ids,
            ..Default::default()
        }
    };
    (0..3).map(sample).collect()
}

fn tokens(step: u64) -> u64 {
    let count = |sample: Sample| sample.trainable.iter().filter(|&&t| t).count() as u64;
    (0..RANKS)
        .flat_map(|rank| share(step, rank))
        .map(count)
        .sum()
}

/// The same steps without ranks, processes or transport.
fn alone(steps: u64) -> Qwen3 {
    let mut model = model(3);
    let config = AdamConfig {
        lr: 1e-2,
        ..Default::default()
    };
    let mut adam = Adam::new(model.params(), config);
    for step in 1..=steps {
        let mut total: Option<Tensor> = None;
        for rank in 0..RANKS {
            let samples = share(step, rank);
            let advantages: Vec<f32> = samples.iter().map(|s| s.advantage as f32).collect();
            let train = |sample: &Sample| TrainSample {
                ids: sample.ids.iter().map(|&id| i64::from(id)).collect(),
                response_mask: sample.trainable.iter().map(|&t| u8::from(t)).collect(),
                old_logprobs: vec![0.0; sample.ids.len()],
                ref_logprobs: None,
            };
            let mut batch = TrainBatch {
                samples: samples.iter().map(train).collect(),
            };
            let loss = GrpoConfig::default();
            let old = grpo::logprobs(&model, &batch, 1.0, loss.micro_batch).unwrap();
            for (sample, old) in batch.samples.iter_mut().zip(old) {
                sample.old_logprobs = old;
            }
            let count = tokens(step) as usize;
            let out = grpo::grpo_gradient(&model, &batch, &advantages, count, &loss).unwrap();
            total = Some(match total {
                None => out.grad,
                Some(sum) => sum + out.grad,
            });
        }
        adam.step(model.params_mut(), &total.unwrap()).unwrap();
    }
    model
}

fn manifest_of(model: &Qwen3, version: u64) -> Manifest {
    let tensors = tensor_specs(model.params().layout());
    let bytes = model.params().as_bytes();
    let built = weights::Manifest::build(WeightVersion(version), bytes, 4096, tensors);
    // Both ranks hold all of it.
    let whole = 0..bytes.len() as u64;
    let named = built.unwrap().named_by(bytes).unwrap();
    to_proto(&named.held_by(vec![whole; 2]).unwrap())
}

pub fn worked(replies: &[CallReply]) {
    for reply in replies {
        assert_eq!(reply.error, "");
    }
}

#[test]
fn two_ranks_train_to_the_bit_what_one_process_computes() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let mut gang = gang(folder.path(), &host, 1);
    worked(&gang.restore(0, Vec::new()));
    assert_eq!(gang.publish(0), manifest_of(&model(3), 0));
    for step in 1..=4 {
        let replies = gang.train(step);
        worked(&replies);
        assert_eq!(
            replies[0].result, replies[1].result,
            "the ranks' figures differ"
        );
        let Some(Answer::Update(update)) = &replies[0].result else {
            panic!()
        };
        assert!(
            update.grad_norm > 0.0 && update.entropy > Some(0.0),
            "{update:?}"
        );
        assert_eq!(
            gang.publish(step),
            manifest_of(&alone(step), step),
            "step {step}"
        );
    }
    gang.end();
}

#[test]
fn a_new_gang_goes_on_from_the_snapshot_as_if_nothing_had_happened() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let mut first = gang(folder.path(), &host, 1);
    worked(&first.restore(0, Vec::new()));
    worked(&first.train(1));
    first.snapshot(1);
    worked(&first.train(2));
    let shards = first.snapshot(2);
    // It dies in step 3: after the update, in the middle of the next snapshot.
    worked(&first.train(3));
    first.end();
    let mut second = gang(folder.path(), &host, 2);
    let replies = second.restore(2, shards.clone());
    worked(&replies);
    assert!(matches!(&replies[1].result, Some(Answer::Restore(reply)) if reply.step == 2));
    worked(&second.train(3));
    assert_eq!(second.publish(3), manifest_of(&alone(3), 3));
    second.end();
    // One flipped bit, a missing shard, shards in the wrong order: refused, each by name.
    let mut third = gang(folder.path(), &host, 3);
    let refused = |replies: Vec<CallReply>| replies[0].error.clone();
    let reversed = shards.iter().rev().cloned().collect();
    assert!(refused(third.restore(2, reversed)).contains("does not follow"));
    let error = refused(third.restore(2, shards[..1].to_vec()));
    assert!(error.contains("bytes"), "{error}");
    let whole = std::fs::read(&shards[1].path).unwrap();
    let mut hashed = shards.clone();
    hashed[1].xxh3 = Some(xxh3_64(&whole[4096..][..shards[1].bytes as usize]));
    let mut file = whole.clone();
    file[whole.len() / 2] ^= 1;
    std::fs::write(&shards[1].path, &file).unwrap();
    let error = refused(third.restore(2, hashed.clone()));
    assert!(error.contains("is corrupt: xxh3 is"), "{error}");
    // A trainer that died in the middle of writing its slot.
    file[16] |= 1;
    std::fs::write(&shards[1].path, &file).unwrap();
    let error = refused(third.restore(2, shards));
    assert!(error.contains("(it is being written)"), "{error}");
    std::fs::write(&hashed[1].path, &whole).unwrap();
    worked(&third.restore(2, hashed));
    third.end();
}

#[test]
fn a_repeated_call_is_answered_from_memory_and_a_foreign_one_refused() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let mut gang = gang(folder.path(), &host, 5);
    worked(&gang.restore(0, Vec::new()));
    let first = gang.train(1);
    let again = gang.train(1);
    worked(&again);
    assert_eq!(first[0].result, again[0].result);
    assert_eq!(gang.publish(1), manifest_of(&alone(1), 1));
    gang.generation = 4;
    let foreign = gang.train_refused(2);
    assert_eq!(
        foreign,
        "the call is for generation 4, this is generation 5"
    );
    gang.generation = 5;
    let early = gang.train_refused(7);
    assert_eq!(
        early,
        "old logprobs of step 7, but this rank's state is of step 1"
    );
    gang.end();
}

#[test]
fn a_daemon_that_starts_again_between_update_and_snapshot_asks_for_other_parts_and_no_bit_differs()
{
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let mut gang = gang(folder.path(), &host, 1);
    worked(&gang.restore(0, Vec::new()));
    let first = gang.train(1);
    worked(&first);
    let ask = |rank| {
        let samples = share(1, rank);
        Body::OldLogprobs(OldLogprobs { step: 1, samples })
    };
    let whole = gang.call("old/all of it/1", ask);
    worked(&whole);
    let lengths = |reply: &CallReply| match &reply.result {
        Some(Answer::Logprobs(reply)) => {
            let is_none = |value: &f32| value.is_nan();
            assert!(reply.rows.iter().all(|row| row.values.iter().all(is_none)));
            reply.rows.iter().map(|row| row.values.len()).collect()
        }
        _ => Vec::new(),
    };
    let expected: Vec<usize> = share(1, 0).iter().map(|s| s.ids.len() - 1).collect();
    assert_eq!(lengths(&whole[0]), expected);
    let again = gang.train(1);
    assert_eq!(first[1].result, again[1].result);
    assert_eq!(gang.publish(1), manifest_of(&alone(1), 1));
    // A state that was restored has no update behind it that could be answered from memory.
    let shards = gang.snapshot(1);
    worked(&gang.restore(1, shards));
    let refused = gang.call("old/after the restore/1", ask).remove(0).error;
    assert!(refused.contains("state is of step 1"), "{refused}");
    gang.end();
}

impl Gang<'_> {
    fn train_refused(&mut self, step: u64) -> String {
        let replies = self.call(&format!("old/{step}"), |rank| {
            Body::OldLogprobs(OldLogprobs {
                step,
                samples: share(step, rank),
            })
        });
        replies[0].error.clone()
    }
}
