#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::*;
use crate::control::GangCalls;
use crate::links::{LinkId, Links};
use crate::snapshots::SnapshotShards;
use crate::store::Finish;
use futures::FutureExt;
use futures::future::BoxFuture;
use robust_proto::v1::{self, call, call_reply, host_message};
use robust_shared::core::{Record, StepMetrics};
use robust_shared::ids::{Generation, TrajectoryId};
use std::collections::BTreeSet;
use std::sync::Mutex;
use tokio::sync::mpsc::unbounded_channel;

const RANK: Incarnation = Incarnation(3);

/// One rank that counts steps, and refuses states that say so.
#[derive(Default)]
struct Rank {
    step: u64,
    keys: Vec<String>,
    steps: Vec<u64>,
}

impl Rank {
    fn answer(&mut self, call: v1::Call) -> Result<call_reply::Result, String> {
        self.keys.push(call.key);
        match call.body.unwrap() {
            call::Body::Restore(restore) => {
                if let Some(bad) = restore.shards.iter().find(|s| s.path.contains("bad")) {
                    return Err(format!("{} is corrupt", bad.path));
                }
                self.step = restore.step;
                let step = restore.step;
                Ok(call_reply::Result::Restore(v1::RestoreReply { step }))
            }
            call::Body::OldLogprobs(old) => {
                let row = |s: &v1::Sample| v1::Floats {
                    values: vec![-0.5; s.ids.len() - 1],
                };
                let rows = old.samples.iter().map(row).collect();
                Ok(call_reply::Result::Logprobs(v1::LogprobsReply { rows }))
            }
            call::Body::Update(update) => {
                assert_eq!(update.step, self.step + 1, "in order");
                self.step = update.step;
                self.steps.push(update.step);
                Ok(call_reply::Result::Update(v1::UpdateReply {
                    loss: update.step as f64,
                    ..Default::default()
                }))
            }
            call::Body::Snapshot(snapshot) => Ok(call_reply::Result::Snapshot(v1::SnapshotReply {
                step: snapshot.step,
                path: format!("slot of {}", snapshot.step),
                ..Default::default()
            })),
            call::Body::Train(_) | call::Body::OwnStep(_) => Err("these are built-in ranks".into()),
            call::Body::Publish(_) => Err("a step that is trained again is not published".into()),
        }
    }
}

/// A source that lists steps; some of which it cannot give.
struct Listed {
    name: &'static str,
    steps: Result<Vec<u64>, String>,
    bad: &'static [u64],
}

impl Source for Listed {
    fn name(&self) -> &'static str {
        self.name
    }

    fn steps(&self, _limit: Step) -> BoxFuture<'_, Result<Vec<Step>, String>> {
        let steps = self.steps.clone();
        let steps = steps.map(|all| all.into_iter().map(Step).collect());
        std::future::ready(steps).boxed()
    }

    fn shards(&self, step: Step) -> BoxFuture<'_, Result<Vec<Shard>, String>> {
        let kind = if self.bad.contains(&step.0) {
            "bad"
        } else {
            "good"
        };
        let path = format!("{kind} state of {step} in {}", self.name);
        let shard = Shard {
            step,
            path,
            bytes: 1,
            xxh3: None,
            generation: Generation(1),
            adam_step: None,
        };
        std::future::ready(Ok(vec![shard])).boxed()
    }
}

fn listed(name: &'static str, steps: &[u64], bad: &'static [u64]) -> Arc<dyn Source> {
    let steps = Ok(steps.to_vec());
    Arc::new(Listed { name, steps, bad })
}

struct Bench {
    gang: Gang,
    rank: Arc<Mutex<Rank>>,
    store: Store,
    told: Arc<Mutex<Vec<(u64, bool)>>>,
    _dir: tempfile::TempDir,
}

impl Bench {
    /// A gang of one rank, and a store that knows what these steps consumed.
    async fn new(consumed: std::ops::Range<u64>) -> Self {
        let links = Links::default();
        let calls = GangCalls::new(links.clone(), 1);
        let (down, mut received) = unbounded_channel();
        let hello = v1::Hello {
            incarnation: RANK.0,
            ..Default::default()
        };
        links.open(hello, LinkId(1), down);
        let rank = Arc::new(Mutex::new(Rank::default()));
        let (working, answers) = (Arc::clone(&rank), calls.clone());
        tokio::spawn(async move {
            while let Some(message) = received.recv().await {
                let Some(host_message::Body::Call(call)) = message.body else {
                    continue;
                };
                let call_id = call.call_id;
                let done = working.lock().unwrap().answer(call);
                let error = done.clone().err().unwrap_or_default();
                let reply = v1::CallReply {
                    call_id,
                    error,
                    result: done.ok(),
                    numeric: false,
                };
                answers.answer(RANK, reply);
            }
        });
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path()).unwrap();
        for step in consumed {
            commit(&store, step, step as f64).await;
        }
        let gang = Gang {
            calls,
            generation: Generation(2),
            ranks: vec![RANK],
            attempt: 0,
            trains: Default::default(),
        };
        Self {
            gang,
            rank,
            store,
            told: Arc::default(),
            _dir: dir,
        }
    }

    async fn restore(
        &self,
        step: u64,
        sources: Vec<Arc<dyn Source>>,
        attempt: u64,
    ) -> Result<Origin, StepError> {
        let told = Arc::clone(&self.told);
        let way = Way {
            own: false,
            sources,
            peers: Vec::new(),
            store: self.store.clone(),
            progress: Box::new(move |news| {
                if let Replayed::Step {
                    again, snapshot, ..
                } = news
                {
                    assert_eq!(snapshot.shards[0].step, again.step.0);
                    told.lock().unwrap().push((again.step.0, again.same));
                }
            }),
            attempt,
        };
        match restore(self.gang.clone(), Step(step), way).await? {
            StepOutcome::Restored { step: of, from, .. } => {
                assert_eq!(of, Step(step));
                Ok(from)
            }
            other => unreachable!("{other:?}"),
        }
    }

    fn trained(&self) -> Vec<u64> {
        self.rank.lock().unwrap().steps.clone()
    }
}

async fn commit(store: &Store, step: u64, loss: f64) {
    let id = |member| TrajectoryId {
        batch: step,
        group: 0,
        member,
    };
    for member in 0..2 {
        let span = v1::Span {
            ids: vec![4, 5],
            logprobs: vec![-0.5, -0.5],
            version: 0,
        };
        let turn = v1::Turn {
            spans: vec![span],
            ..Default::default()
        };
        store.append_turn(id(member), vec![1], turn).await.unwrap();
        let finish = Finish {
            reward: f64::from(member),
            turns: 1,
            ..Finish::default()
        };
        store.finish(id(member), finish).await.unwrap();
    }
    let metrics = StepMetrics {
        reward: 0.5,
        loss,
        tokens: 4,
        ..StepMetrics::default()
    };
    let record = Record::Committed {
        step: Step(step),
        generation: Generation(1),
        trajectories: vec![id(0), id(1)],
        metrics,
        provenance: None,
    };
    store
        .record(vec![record], Default::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn of_one_step_the_first_source_is_taken_and_a_newer_step_before_an_older_one() {
    let bench = Bench::new(0..0).await;
    let sources = || {
        let (a, b) = (listed("a", &[4, 6], &[]), listed("b", &[7, 6, 5], &[]));
        vec![a, b]
    };
    let from = bench.restore(7, sources(), 1).await.unwrap();
    assert_eq!((from.source, from.from), ("b", Step(7)));
    let from = bench.restore(6, sources(), 2).await.unwrap();
    assert_eq!((from.source, from.to_string()), ("a", "from a".to_owned()));
    assert_eq!(bench.rank.lock().unwrap().step, 6);
}

#[tokio::test]
async fn what_is_damaged_or_unreadable_is_passed_over_and_said() {
    let bench = Bench::new(0..0).await;
    let broken: Arc<dyn Source> = Arc::new(Listed {
        name: "c",
        steps: Err("no route to it".into()),
        bad: &[],
    });
    let a = listed("a", &[3], &[3]);
    let sources = vec![a, broken, listed("d", &[], &[]), listed("e", &[3], &[])];
    let from = bench.restore(3, sources, 1).await.unwrap().to_string();
    let refused = "restore/g2/3/again-1 failed on #3: bad state of 3 in a is corrupt";
    assert_eq!(
        from,
        format!(
            "from e; passed over: a at step 3: {refused}; c: no route to it; d: no state is known \
             there"
        )
    );
}

#[tokio::test]
async fn a_far_source_is_not_asked_when_a_nearer_one_will_do() {
    let bench = Bench::new(0..0).await;
    let far: Arc<dyn Source> = Arc::new(Listed {
        name: "far",
        steps: Err("asked".into()),
        bad: &[],
    });
    let sources = vec![listed("a", &[3], &[]), far];
    let from = bench.restore(3, sources, 1).await.unwrap().to_string();
    assert_eq!(from, "from a");
}

#[tokio::test]
async fn steps_after_the_newest_state_there_is_are_trained_again_and_not_published() {
    let bench = Bench::new(1..7).await;
    // Step 6 on record has a figure that the rank does not come to.
    commit(&bench.store, 6, 0.25).await;
    let sources = vec![listed("a", &[6, 3], &[6]), listed("b", &[2], &[])];
    let from = bench.restore(6, sources, 1).await.unwrap();
    assert_eq!((from.source, from.from), ("a", Step(3)));
    assert_eq!(bench.trained(), [4, 5, 6]);
    assert_eq!(
        *bench.told.lock().unwrap(),
        [(4, true), (5, true), (6, false)]
    );
    let text = from.to_string();
    assert!(
        text.starts_with(
            "from a at step 3, then steps 4 to 6 were trained again from their trajectories, 1 of \
             them with other figures than the first time; passed over: a at step 6: "
        ),
        "{text}"
    );
    // I-3: what the steps consumed is consumed by them still.
    assert_eq!(bench.store.consumed_by(Step(5)).unwrap().len(), 2);
}

#[tokio::test]
async fn without_any_state_all_steps_are_trained_again_from_the_initial_weights() {
    let bench = Bench::new(1..3).await;
    let from = bench.restore(2, Vec::new(), 1).await.unwrap();
    assert_eq!(
        from.to_string(),
        "from the initial weights at step 0, then steps 1 to 2 were trained again from their \
         trajectories, with the same figures to the bit"
    );
    assert_eq!(bench.trained(), [1, 2]);
    let start = bench.restore(0, vec![listed("a", &[3], &[])], 2).await;
    assert_eq!(start.unwrap().to_string(), "from the initial weights");
}

#[tokio::test]
async fn where_trajectories_are_missing_it_fails_and_says_what_would_help() {
    let bench = Bench::new(4..6).await;
    let sources = vec![listed("a", &[5, 2], &[5])];
    let error = bench.restore(5, sources, 1).await.unwrap_err();
    assert_eq!(error.rank(), Some(RANK), "the one that refused a state");
    let text = error.to_string();
    for part in [
        "step 5 cannot be restored: a at step 5: ",
        "a at step 2: what step 3 consumed is not in the store any more",
        "the initial weights at step 0: what steps 1 to 3 consumed is not in the store any more",
        "bring a checkpoint of step 5 back",
        "--fresh",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(bench.trained(), [0; 0]);
}

#[tokio::test]
async fn another_attempt_does_all_of_it_again_though_the_rank_answered_before() {
    let bench = Bench::new(1..5).await;
    for attempt in [7, 8] {
        let sources = vec![listed("a", &[2], &[])];
        bench.restore(4, sources, attempt).await.unwrap();
    }
    assert_eq!(bench.trained(), [3, 4, 3, 4]);
    let rank = bench.rank.lock().unwrap();
    let different: BTreeSet<_> = rank.keys.iter().collect();
    assert_eq!(different.len(), rank.keys.len(), "{:?}", rank.keys);
    assert!(rank.keys.iter().all(|k| k.contains("/again-")));
}

#[tokio::test]
async fn memory_that_is_gone_gives_way_to_the_verified_checkpoint_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    let reply = |path: &std::path::Path| v1::SnapshotReply {
        step: 2,
        path: path.display().to_string(),
        ..Default::default()
    };
    let (slot, gone) = (dir.path().join("slot"), dir.path().join("gone"));
    std::fs::write(&slot, b"state").unwrap();
    let memory = |shards: Vec<v1::SnapshotReply>| {
        let generation = Generation(1);
        Memory::new(
            [(
                Step(2),
                SnapshotShards {
                    generation,
                    shards,
                    homes: Vec::new(),
                },
            )]
            .into(),
        )
    };
    let whole = memory(vec![reply(&slot)]);
    assert_eq!(whole.steps(Step(9)).await.unwrap(), [Step(2)]);
    assert_eq!(whole.steps(Step(1)).await.unwrap(), [] as [Step; 0]);
    assert_eq!(whole.shards(Step(2)).await.unwrap().len(), 1);
    let torn = memory(vec![reply(&slot), reply(&gone)]);
    let why = torn.shards(Step(2)).await.unwrap_err();
    assert!(why.ends_with("gone is not there any more"), "{why}");

    let ckpt = dir.path().join("ckpt");
    let shard = checkpoint(&ckpt, 2);
    checkpoint(&ckpt, 5);
    let disk = Disk::new(ckpt);
    assert_eq!(disk.steps(Step(4)).await.unwrap(), [Step(2)]);
    assert_eq!(disk.shards(Step(2)).await.unwrap()[0].bytes, 5);
    std::fs::write(shard, b"stale").unwrap();
    let why = disk.shards(Step(2)).await.unwrap_err();
    assert!(why.contains("does not match its digest"), "{why}");
    let nowhere = Disk::new(dir.path().join("none"));
    assert_eq!(nowhere.steps(Step(4)).await.unwrap(), [] as [Step; 0]);
}

fn checkpoint(ckpt: &std::path::Path, step: u64) -> std::path::PathBuf {
    let dir = ckpt.join(robust_ckpt::folder_name(step));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join(robust_ckpt::manifest::shard_file(0));
    std::fs::write(&path, b"state").unwrap();
    let shard = robust_ckpt::Shard {
        rank: 0,
        path: path.clone(),
        bytes: 5,
        xxh3: xxhash_rust::xxh3::xxh3_64(b"state"),
    };
    let real = robust_ckpt::disk::RealDisk;
    let checkpoint = robust_ckpt::Checkpoint {
        step: Step(step),
        generation: Generation(1),
        dir,
        shards: vec![shard],
        consumed: Vec::new(),
        reward: None,
        at: None,
        adam_step: None,
        tensors: Vec::new(),
    };
    robust_ckpt::manifest::store(&real, &checkpoint).unwrap();
    path
}
