//! A rank that counts steps.
use super::{Fake, Up, say, served};
use robust_ckpt::slot::{Image, Slot, SnapshotMemory, Taken};
use robust_proto::v1::{self, call, call_reply, role_message::Body};
use robust_shared::ids::{Generation, Step};
use std::path::Path;
use std::time::Duration;

/// Long enough for a test to strike in the middle of it.
const UPDATE: Duration = Duration::from_millis(100);

impl Fake {
    /// Does a call once; a repeated key is answered from memory.
    pub async fn answer(&mut self, up: &Up, call: v1::Call) -> v1::CallReply {
        assert_eq!(call.generation, self.hello.generation);
        if let Some(known) = self.replies.get(&call.key) {
            return v1::CallReply {
                call_id: call.call_id,
                ..known.clone()
            };
        }
        let result = Some(self.perform(up, call.body.unwrap()).await);
        let reply = v1::CallReply {
            call_id: call.call_id,
            error: String::new(),
            numeric: false,
            result,
        };
        self.replies.insert(call.key, reply.clone());
        reply
    }

    async fn perform(&mut self, up: &Up, body: call::Body) -> call_reply::Result {
        match body {
            call::Body::Restore(restore) => {
                restore.shards.iter().for_each(check);
                self.trainer_step = restore.step;
                self.hello.step = Some(restore.step);
                call_reply::Result::Restore(v1::RestoreReply { step: restore.step })
            }
            call::Body::OldLogprobs(old) => {
                let row = |s: &v1::Sample| v1::Floats {
                    values: vec![-0.5; s.ids.len() - 1],
                };
                let rows = old.samples.iter().map(row).collect();
                call_reply::Result::Logprobs(v1::LogprobsReply { rows })
            }
            call::Body::Update(update) => {
                assert_eq!(update.step, self.trainer_step + 1);
                let phase = v1::PhaseChange {
                    phase: "update".into(),
                    step: update.step,
                };
                say(up, Body::Phase(phase));
                tokio::time::sleep(UPDATE).await;
                self.trainer_step = update.step;
                self.hello.step = Some(update.step);
                call_reply::Result::Update(v1::UpdateReply {
                    loss: 1.0,
                    ..Default::default()
                })
            }
            call::Body::Snapshot(snapshot) => self.snapshot(snapshot.step),
            call::Body::Publish(publish) => {
                self.hello.served = Some(served(publish.version));
                call_reply::Result::Publish(served(publish.version))
            }
        }
    }

    fn snapshot(&self, step: u64) -> call_reply::Result {
        let (rank, slot) = (self.hello.index, step % 2);
        let path = self.snapshots.join(format!("trainer-{rank}.slot{slot}"));
        let image = format!("rank {rank} step {step}");
        let generation = self.hello.generation;
        let mut slot = Slot::open(&path, image.len() as u64).unwrap();
        let taken = (Step(step), Generation(generation));
        let part: &dyn SnapshotMemory = &image.as_bytes();
        slot.write(taken, step, &[part]).unwrap();
        call_reply::Result::Snapshot(v1::SnapshotReply {
            step,
            path: path.display().to_string(),
            bytes: image.len() as u64,
            xxh3: None,
            generation,
            adam_step: Some(step),
        })
    }
}

/// The shard is what the step's snapshot was, whoever wrote it.
fn check(shard: &v1::SnapshotReply) {
    let taken = Taken {
        step: Step(shard.step),
        generation: Generation(shard.generation),
        bytes: shard.bytes,
    };
    let image = Image::open(Path::new(&shard.path), taken).unwrap();
    let mut text = vec![0; shard.bytes as usize];
    image
        .restore(0, &mut [&mut &mut *text], shard.xxh3)
        .unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.ends_with(&format!(" step {}", shard.step)), "{text}");
    assert_eq!(shard.adam_step, Some(shard.step));
}
