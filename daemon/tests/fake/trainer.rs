//! A rank whose state follows from all that it was trained on: two ranks of a number that were trained
//! on the same, in the same order, have the same state, and no others.
use super::{Fake, Up, note, say, served};
use robust_ckpt::slot::{Image, Slot, SnapshotMemory, Taken};
use robust_proto::v1::{self, call, call_reply, role_message::Body};
use robust_shared::ids::{Generation, Step};
use std::path::Path;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::Xxh3;

/// Long enough for a test to strike in the middle of it.
const UPDATE: Duration = Duration::from_millis(100);

/// It works for so long after every rest.
const WORK: Duration = Duration::from_millis(1);
const REST: Duration = Duration::from_millis(19);

/// What a rank says of a loss that is none.
const NO_NUMBER: &str = "the loss is NaN";

/// What a rank came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trained {
    step: u64,
    /// Follows from what all ranks know of every step: the weights, which are the same on all.
    weights: u64,
    /// Follows from the rank's own share of every batch.
    share: u64,
}

impl Trained {
    fn after(self, update: &v1::Update) -> Self {
        let mut weights = Xxh3::with_seed(self.weights);
        weights.update(&update.step.to_le_bytes());
        weights.update(&update.batch_trainable_tokens.to_le_bytes());
        let mut share = Xxh3::with_seed(self.share);
        for sample in &update.samples {
            let old = sample.old_logprobs.iter().map(|p| p.to_bits());
            let words = sample.ids.iter().copied().chain(old);
            words.for_each(|word| share.update(&word.to_le_bytes()));
            share.update(&sample.advantage.to_bits().to_le_bytes());
        }
        Self {
            step: update.step,
            weights: weights.digest(),
            share: share.digest(),
        }
    }

    fn image(self) -> String {
        format!(
            "{:020} {:016x} {:016x}",
            self.step, self.weights, self.share
        )
    }

    fn of_image(image: &str) -> Self {
        let mut words = image.split_whitespace();
        let step = words.next().unwrap().parse().unwrap();
        let mut hex = || u64::from_str_radix(words.next().unwrap(), 16).unwrap();
        Self {
            step,
            weights: hex(),
            share: hex(),
        }
    }
}

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
        let (error, result) = match self.perform(up, call.body.unwrap()).await {
            Ok(result) => (String::new(), Some(result)),
            Err(error) => (error, None),
        };
        let numeric = error == NO_NUMBER;
        let reply = v1::CallReply {
            call_id: call.call_id,
            error,
            numeric,
            result,
        };
        if reply.error.is_empty() {
            self.replies.insert(call.key, reply.clone());
        }
        reply
    }

    async fn perform(&mut self, up: &Up, body: call::Body) -> Result<call_reply::Result, String> {
        match body {
            call::Body::Restore(restore) => self.restore(&restore),
            call::Body::OldLogprobs(old) => {
                let row = |s: &v1::Sample| v1::Floats {
                    values: vec![-0.5; s.ids.len() - 1],
                };
                let rows = old.samples.iter().map(row).collect();
                Ok(call_reply::Result::Logprobs(v1::LogprobsReply { rows }))
            }
            call::Body::Update(update) => {
                assert_eq!(update.step, self.trained.step + 1);
                let phase = v1::PhaseChange {
                    phase: "update".into(),
                    step: update.step,
                };
                say(up, Body::Phase(phase));
                self.enter(up, "update").await;
                compute(update_time()).await;
                if self.take(up, "exception", "update") {
                    return Err("exception on request in update".to_owned());
                }
                if self.take(up, "nan", "update") {
                    return Err(NO_NUMBER.to_owned());
                }
                self.trained = self.trained.after(&update);
                self.hello.step = Some(update.step);
                Ok(call_reply::Result::Update(v1::UpdateReply {
                    loss: 1.0,
                    ..Default::default()
                }))
            }
            call::Body::Train(_) | call::Body::OwnStep(_) => {
                Err("whole steps are for programs of the user's".to_owned())
            }
            call::Body::Snapshot(snapshot) => Ok(self.snapshot(snapshot.step)),
            call::Body::Publish(publish) => {
                let weights = self.trained.weights;
                if self.take(up, "corrupt-weights", "publish") {
                    self.corrupt(publish.version);
                }
                note(&format!("publish {} {weights:016x}", publish.version));
                let served = served(publish.version, weights, self.ranks);
                self.hello.served = Some(served.clone());
                Ok(call_reply::Result::Publish(served))
            }
        }
    }

    fn restore(&mut self, restore: &v1::Restore) -> Result<call_reply::Result, String> {
        self.trained = Trained::default();
        self.ranks = restore.peers.len();
        for (rank, shard) in (0..).zip(&restore.shards) {
            let trained = read(shard)?;
            assert_eq!(trained.step, restore.step);
            if rank == self.hello.index {
                self.trained = trained;
            }
        }
        assert_eq!(self.trained.step, restore.step);
        self.hello.step = Some(restore.step);
        let step = restore.step;
        Ok(call_reply::Result::Restore(v1::RestoreReply { step }))
    }

    fn snapshot(&self, step: u64) -> call_reply::Result {
        let (rank, slot) = (self.hello.index, step % 2);
        let path = self.snapshots.join(format!("trainer-{rank}.slot{slot}"));
        let image = self.trained.image();
        let generation = self.hello.generation;
        let mut slot = Slot::open(&path, image.len() as u64).unwrap();
        let taken = (Step(step), Generation(generation));
        let part: &dyn SnapshotMemory = &image.as_bytes();
        slot.write(taken, step, &[part]).unwrap();
        note(&format!("state {rank} {image}"));
        call_reply::Result::Snapshot(v1::SnapshotReply {
            step,
            path: path.display().to_string(),
            bytes: image.len() as u64,
            xxh3: None,
            generation,
            adam_step: Some(step),
            blake3: None,
        })
    }
}

/// What a shard holds, which is what the step's snapshot was, whoever wrote it.
fn read(shard: &v1::SnapshotReply) -> Result<Trained, String> {
    let taken = Taken {
        step: Step(shard.step),
        generation: Generation(shard.generation),
        bytes: shard.bytes,
    };
    let mut text = vec![0; shard.bytes as usize];
    let image = Image::open(Path::new(&shard.path), taken).map_err(|e| e.to_string())?;
    let restored = image.restore(0, &mut [&mut &mut *text], shard.xxh3);
    restored.map_err(|e| e.to_string())?;
    assert_eq!(shard.adam_step, Some(shard.step));
    Ok(Trained::of_image(&String::from_utf8(text).unwrap()))
}

/// Computes for so long: a share of its core that nobody takes for idle.
async fn compute(lasts: Duration) {
    if std::env::var_os(super::WAITS).is_some() {
        return tokio::time::sleep(lasts).await;
    }
    let end = Instant::now() + lasts;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left.min(REST)).await;
        let began = Instant::now();
        while began.elapsed() < WORK {
            std::hint::spin_loop();
        }
    }
}

fn update_time() -> Duration {
    let given = std::env::var(super::UPDATE_MS).ok();
    let given = given.and_then(|ms| ms.parse().ok());
    given.map_or(UPDATE, Duration::from_millis)
}
