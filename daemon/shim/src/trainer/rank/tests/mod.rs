//! What a rank answers to its program and to the daemon, in which order whatever comes first.
#![allow(clippy::unwrap_used)]
mod batches;
mod own_loop;

use super::*;
use robust_proto::v1::call::Body;
use robust_proto::v1::call_reply::Result as Reply;
use robust_proto::v1::{Publish, Restore, Snapshot, SnapshotReply, Train};
use std::path::PathBuf;

/// Remembers what was done.
#[derive(Default)]
struct Fake {
    done: Vec<String>,
    corrupt: bool,
    spoils: bool,
    exception: Option<String>,
}

impl Hands for Fake {
    fn look_at(&mut self, shards: &[SnapshotReply]) -> Result<Vec<Place>, String> {
        match self.corrupt {
            true => Err(format!("{} is corrupt", shards[0].path)),
            false => Ok(shards.iter().map(|shard| place(&shard.path)).collect()),
        }
    }
    fn is_unchanged(&mut self) -> Result<(), String> {
        Ok(())
    }
    fn lay_batch(&mut self, train: &Train) -> Result<PathBuf, String> {
        self.done.push(format!("batch {}", train.step));
        Ok(PathBuf::from("batch"))
    }
    fn begin_state(&mut self, step: u64, _: &[Tensor]) -> Result<Place, String> {
        self.done.push(format!("begin state {step}"));
        Ok(place("slot"))
    }
    fn end_state(&mut self, step: u64) -> Result<SnapshotReply, String> {
        self.done.push(format!("end state {step}"));
        Ok(SnapshotReply {
            step,
            ..SnapshotReply::default()
        })
    }
    fn begin_version(&mut self, version: u64, _: &[Tensor]) -> Result<Place, String> {
        self.done.push(format!("begin version {version}"));
        Ok(place("version"))
    }
    fn end_version(&mut self, version: u64, _: Option<CanaryAnswer>) -> Result<(), String> {
        self.done.push(format!("end version {version}"));
        Ok(())
    }
    fn exception(&mut self) -> Option<String> {
        self.exception.take()
    }
    fn spoils(&mut self) -> bool {
        std::mem::take(&mut self.spoils)
    }
    fn is_at(&mut self, step: Option<u64>) {
        self.done.push(format!("at {step:?}"));
    }
}

fn place(path: &str) -> Place {
    Place {
        path: PathBuf::from(path),
        data: 0,
        tensors: Vec::new(),
    }
}

fn rank_of(canary: bool) -> Rank<Fake> {
    let attached = attached(canary);
    Rank::new(attached, None, Fake::default())
}

fn attached(canary: bool) -> Attached {
    Attached {
        rank: 1,
        world_size: 2,
        local_rank: 1,
        generation: 4,
        incarnation: 9,
        job: "j".to_owned(),
        model: PathBuf::from("model"),
        page: PathBuf::from("page"),
        level: Level::Data,
        keeps_state: true,
        phases: Vec::new(),
        reshards: false,
        canary: canary.then(|| super::super::words::CanaryPrompt {
            prompt_ids: vec![1],
            tokens: 1,
        }),
    }
}

fn rank() -> Rank<Fake> {
    rank_of(false)
}

fn attach() -> Ask {
    Ask::Attach {
        protocol: PROTOCOL,
        pid: 1,
        package: "t".to_owned(),
    }
}

fn call(key: &str, body: Body) -> Call {
    Call {
        call_id: 7,
        key: key.to_owned(),
        generation: 4,
        body: Some(body),
    }
}

fn restore(step: u64, shards: usize) -> Call {
    let shard = |at| SnapshotReply {
        step,
        path: format!("shard {at}"),
        ..SnapshotReply::default()
    };
    let body = Body::Restore(Restore {
        step,
        shards: (0..shards).map(shard).collect(),
        peers: Vec::new(),
        own: false,
    });
    call(&format!("restore/{step}"), body)
}

fn train(step: u64) -> Call {
    let body = Body::Train(Train {
        step,
        samples: Vec::new(),
        batch_trainable_tokens: 5,
    });
    call(&format!("train/{step}"), body)
}

fn snapshot(step: u64) -> Call {
    call(
        &format!("snapshot/{step}"),
        Body::Snapshot(Snapshot { step }),
    )
}

fn publish(version: u64) -> Call {
    call(
        &format!("publish/{version}"),
        Body::Publish(Publish { version }),
    )
}

fn figures(step: u64, loss: &str) -> Ask {
    Ask::Figures {
        step,
        figures: [("loss".to_owned(), loss.to_owned())].into(),
        tensors: Vec::new(),
    }
}

fn version(version: u64) -> Ask {
    Ask::Publish {
        version: Some(version),
        tensors: Vec::new(),
    }
}

fn published(version: u64) -> Ask {
    let canary = None;
    Ask::Published { version, canary }
}

const EPOCH: fn() -> DaemonEpoch = DaemonEpoch::default;

/// What it says to the question; none: it waits.
fn ask(rank: &mut Rank<Fake>, ask: Ask) -> Option<Answer> {
    rank.on_ask(ask);
    answers(rank).pop()
}

/// Answers to the program that are due; replies to the daemon are dropped.
fn answers(rank: &mut Rank<Fake>) -> Vec<Answer> {
    let said = rank.said().into_iter();
    let answers = said.filter_map(|said| match said {
        Said::Answer(answer) => Some(answer),
        Said::Reply(..) => None,
    });
    answers.collect()
}

/// Replies to the daemon that are due, as result or error.
fn replies(rank: &mut Rank<Fake>) -> Vec<Result<Reply, String>> {
    let said = rank.said().into_iter();
    let replies = said.filter_map(|said| match said {
        Said::Reply(_, reply) => Some(match reply.error.is_empty() {
            true => Ok(reply.result.unwrap()),
            false => Err(reply.error),
        }),
        Said::Answer(_) => None,
    });
    replies.collect()
}

fn refusal(answer: Option<Answer>) -> String {
    match answer {
        Some(Answer::Error { reason }) => reason,
        other => unreachable!("{other:?}"),
    }
}

/// A rank whose program has the state of step 6, published.
fn at_six() -> Rank<Fake> {
    let mut rank = rank();
    ask(&mut rank, attach());
    rank.on_call(EPOCH(), restore(6, 2));
    let told = ask(&mut rank, Ask::Restore);
    assert_eq!(
        told,
        Some(Answer::State {
            step: 6,
            places: vec![place("shard 1")]
        })
    );
    let (step, error) = (6, None);
    assert_eq!(
        ask(&mut rank, Ask::Restored { step, error }),
        Some(Answer::Done)
    );
    ask(&mut rank, version(6));
    ask(&mut rank, published(6));
    rank.on_served(6, Ok(ServedVersion::default()));
    rank.said();
    rank
}

/// The same, after the batch of step 7.
fn at_seven() -> Rank<Fake> {
    let mut rank = at_six();
    rank.on_call(EPOCH(), train(7));
    assert!(matches!(
        ask(&mut rank, Ask::Batch),
        Some(Answer::Batch { step: 7, .. })
    ));
    rank
}
