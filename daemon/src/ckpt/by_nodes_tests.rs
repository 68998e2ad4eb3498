//! Nodes that put what they hold, and those that do not: over a folder as store.
#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::ckpt::{Checkpointer, Config};
use crate::control::{GangWorkEvent, Needed, PeerView, Peers};
use crate::nodes::Shards;
use crate::snapshots::SnapshotShards;
use crate::store::Store;
use crate::tell::Tell;
use robust_ckpt::{Retention, disk};
use robust_remote::Remote;
use robust_shared::ids::{Generation, TrajectoryId};
use robust_shared::replicas::ShardKey;
use std::collections::BTreeMap;
use tempfile::TempDir;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::watch;
use xxhash_rust::xxh3::xxh3_64;

const STEP: u64 = 4;

/// What a node does that is told to put a shard.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Puts,
    Refuses,
    Leaves,
    Hangs,
    /// Says that it put what it did not.
    Lies,
    /// Puts something else, and says so.
    Forges,
}

struct Bench {
    dir: TempDir,
    remote: Remote,
    by_nodes: ByNodes,
    checkpointer: Checkpointer,
    events: UnboundedReceiver<CkptEvent>,
    puts: Puts,
    shards: Shards,
}

fn image(rank: u32) -> Vec<u8> {
    format!("all that rank {rank} knows").into_bytes()
}

fn snapshot(rank: u32) -> v1::SnapshotReply {
    v1::SnapshotReply {
        step: STEP,
        generation: 2,
        bytes: image(rank).len() as u64,
        adam_step: Some(STEP),
        ..Default::default()
    }
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let keep = Retention {
            last: 2,
            every: 0,
            best: 0,
        };
        let (store, _) = Store::open(dir.path()).unwrap();
        let (sender, events) = mpsc::unbounded_channel();
        let ckpt = dir.path().join("ckpt");
        let config = Config {
            dir: ckpt.clone(),
            keep: keep.clone(),
            disk: disk::real(),
        };
        let checkpointer = Checkpointer::start(config, store.clone(), sender).unwrap();
        let remote = Remote::open(&format!("file://{}/far", dir.path().display())).unwrap();
        let config = RemoteConfig {
            remote: remote.clone(),
            run: "r".to_owned(),
            dir: ckpt,
            every: 1,
            keep,
        };
        let by_nodes = ByNodes::new(config, store);
        let memory = dir.path().join("memory");
        std::fs::create_dir(&memory).unwrap();
        let shards = Shards::new(memory, dir.path().join("ckpt"));
        let puts = Puts::default();
        Self {
            dir,
            remote,
            by_nodes,
            checkpointer,
            events,
            puts,
            shards,
        }
    }

    /// A node of this name that does so with every order.
    fn node(&self, name: &str, does: Does) -> Hand {
        let (orders, mut told) = mpsc::unbounded_channel::<v1::LeaderMessage>();
        let (name, puts, shards) = (name.to_owned(), self.puts.clone(), self.shards.clone());
        let holder = PeerHolder {
            name: name.clone(),
            xxh3: None,
            orders,
        };
        tokio::spawn(async move {
            while let Some(order) = told.recv().await {
                match order.body {
                    Some(Down::Put(order)) if does != Does::Leaves => {
                        if does != Does::Hangs {
                            puts.answered(&name, answer(&order, does).await);
                        }
                    }
                    Some(Down::Give(give)) => give_to(&shards, &name, give.shard.unwrap()),
                    _ => return,
                }
            }
        });
        Hand::Node(holder)
    }

    fn putting(&self, hands: Vec<Vec<Hand>>) -> Putting {
        let key = |rank| ShardKey {
            step: Step(STEP),
            generation: Generation(2),
            rank,
        };
        let ranks = (0..).zip(&hands);
        // The node that a shard may be brought from is whoever is named for it.
        let held = ranks.map(|(rank, hands)| {
            let nodes = hands.iter().filter_map(|hand| match hand {
                Hand::Node(holder) => Some(holder.clone()),
                _ => None,
            });
            (key(rank), nodes.collect::<Vec<_>>())
        });
        let held: BTreeMap<_, _> = held.collect();
        self.putting_of(hands, held)
    }

    fn putting_of(
        &self,
        hands: Vec<Vec<Hand>>,
        held: BTreeMap<ShardKey, Vec<PeerHolder>>,
    ) -> Putting {
        let shards: Vec<_> = (0..)
            .zip(hands)
            .map(|(rank, h)| (snapshot(rank), h))
            .collect();
        let (_, view) = watch::channel(std::sync::Arc::new(PeerView {
            held,
            away: 0,
            nodes: 3,
        }));
        let (events, _) = mpsc::unbounded_channel::<GangWorkEvent>();
        let peers = Peers {
            view,
            shards: self.shards.clone(),
            events: Tell::into_channel(&events),
        };
        let known = SnapshotShards {
            generation: Generation(2),
            shards: shards.iter().map(|(shard, _)| shard.clone()).collect(),
            homes: Vec::new(),
        };
        Putting {
            request: Request {
                step: Step(STEP),
                generation: Generation(2),
                shards: Vec::new(),
                consumed: Vec::new(),
                reward: Some(0.5),
                tensors: Vec::new(),
            },
            shards,
            memory: PeerMemory::new([(Step(STEP), known)].into(), peers, Needed::All),
            puts: self.puts.clone(),
        }
    }

    /// What comes of a checkpoint whose ranks these can put, in words.
    async fn put(&mut self, hands: Vec<Vec<Hand>>) -> String {
        self.put_this(self.putting(hands)).await
    }

    async fn put_this(&mut self, putting: Putting) -> String {
        let turn = self.checkpointer.begin().unwrap();
        self.by_nodes.clone().put(turn, putting).await;
        self.events.recv().await.unwrap().to_string()
    }

    /// Steps of checkpoints that are there; all of them verify.
    async fn there(&self) -> Vec<u64> {
        let listed = self.remote.list("r").await.unwrap();
        for kept in &listed {
            self.remote.verify(kept, &mut |_| ()).await.unwrap();
        }
        listed.iter().map(|kept| kept.place.step.0).collect()
    }
}

async fn answer(order: &v1::PutShard, does: Does) -> v1::ShardPut {
    let shard = order.shard.unwrap();
    let forged = vec![b'?'; shard.bytes as usize];
    let data = match does {
        Does::Forges => forged,
        _ => image(shard.rank),
    };
    let (ticket, url) = (order.ticket, order.url.strip_prefix("file://").unwrap());
    if does == Does::Refuses {
        let error = "it is not here any more".to_owned();
        return v1::ShardPut {
            ticket,
            error,
            ..Default::default()
        };
    }
    if does != Does::Lies {
        let path = PathBuf::from(url).join(&order.key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, &data).unwrap();
    }
    v1::ShardPut {
        ticket,
        shard: Some(v1::HeldShard {
            xxh3: Some(xxh3_64(&data)),
            ..shard
        }),
        blake3: blake3::hash(&data).as_bytes().to_vec(),
        error: String::new(),
    }
}

/// A node of an earlier build sends a shard to the leader.
fn give_to(shards: &Shards, name: &str, wanted: v1::HeldShard) {
    let data = image(wanted.rank);
    let header = v1::ShardHeader {
        incarnation: 0,
        rank: wanted.rank,
        step: wanted.step,
        bytes: wanted.bytes,
    };
    let mut keeping = shards.keep(header, name).unwrap();
    keeping.add(&data).unwrap();
    keeping.finish(Some(xxh3_64(&data))).unwrap();
}

#[tokio::test]
async fn each_shard_is_put_by_its_node_and_the_manifest_names_them() {
    let mut bench = Bench::new();
    let hands = || {
        vec![
            vec![bench.node("b", Does::Puts)],
            vec![bench.node("c", Does::Puts)],
        ]
    };
    let (first, second, third) = (hands(), hands(), hands());
    let said = bench.put(first).await;
    assert!(
        said.starts_with("checkpoint of step 4 is in file://"),
        "{said}"
    );
    assert!(said.ends_with(", put by b, c"), "{said}");
    assert_eq!(bench.there().await, [STEP]);
    let standing = bench.by_nodes.standing();
    assert_eq!(standing.step, Some(Step(STEP)));
    let bytes = 2 * image(0).len() as u64;
    assert_eq!((standing.sent_bytes, standing.failed), (bytes, 0));
    let known = |mut putting: Putting| {
        for (rank, (shard, _)) in (0..).zip(&mut putting.shards) {
            shard.xxh3 = Some(xxh3_64(&image(rank)));
        }
        putting
    };
    let again = known(bench.putting(second));
    let again = bench.put_this(again).await;
    assert!(again.ends_with(", which had it already"), "{again}");
    // A copy of the job went another way, and put its own there.
    let mut other = known(bench.putting(third));
    other.request.consumed = vec![TrajectoryId {
        batch: 4,
        group: 0,
        member: 0,
    }];
    let other = bench.put_this(other).await;
    assert!(other.ends_with(", put by b, c"), "{other}");
    assert_eq!(bench.there().await, [STEP]);
    let listed = bench.remote.list("r").await.unwrap();
    let consumed = &listed[0].manifest.as_ref().unwrap().consumed;
    assert_eq!(consumed.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_refuses_leaves_hangs_or_puts_something_else_gives_way_to_the_next_holder() {
    for does in [Does::Refuses, Does::Leaves, Does::Hangs, Does::Forges] {
        let mut bench = Bench::new();
        let hands = vec![bench.node("b", does), bench.node("c", Does::Puts)];
        let mut putting = bench.putting(vec![hands]);
        // The snapshot's digest is known, as a copy was made of it.
        putting.shards[0].0.xxh3 = Some(xxh3_64(&image(0)));
        let said = bench.put_this(putting).await;
        assert!(said.ends_with(", put by c"), "{said}");
        assert_eq!(bench.there().await, [STEP]);
    }
}

#[tokio::test]
async fn a_copy_that_is_made_to_have_the_digest_of_the_snapshot_is_not_signed_for() {
    let mut bench = Bench::new();
    let mut putting = bench.putting(vec![vec![bench.node("b", Does::Puts)]]);
    putting.shards[0].0.blake3 = Some(vec![7; 32]);
    let said = bench.put_this(putting).await;
    assert!(said.contains("b: what it put has another digest"), "{said}");
    assert!(bench.there().await.is_empty());
}

#[tokio::test]
async fn without_all_shards_there_is_no_manifest_and_the_next_checkpoint_is_another_chance() {
    let mut bench = Bench::new();
    let lost = vec![
        vec![bench.node("b", Does::Puts)],
        vec![bench.node("c", Does::Refuses)],
    ];
    let said = bench.put(lost).await;
    assert!(
        said.starts_with("the checkpoint of step 4 is not in file://"),
        "{said}"
    );
    assert!(
        said.ends_with("the shard of rank 1: c: it is not here any more; the job goes on"),
        "{said}"
    );
    assert!(bench.there().await.is_empty());
    assert_eq!(bench.by_nodes.standing().failed, 1);
    let nobody = vec![vec![bench.node("b", Does::Puts)], Vec::new()];
    let said = bench.put(nobody).await;
    assert!(said.contains("no machine that is there holds it"), "{said}");
    let lied = vec![
        vec![bench.node("b", Does::Puts)],
        vec![bench.node("c", Does::Lies)],
    ];
    let said = bench.put(lied).await;
    assert!(
        said.contains("do all machines see the same store?"),
        "{said}"
    );
    assert!(bench.there().await.is_empty());
    let next = vec![
        vec![bench.node("b", Does::Puts)],
        vec![bench.node("c", Does::Puts)],
    ];
    bench.put(next).await;
    assert_eq!(bench.there().await, [STEP]);
    assert_eq!(bench.by_nodes.standing().failing, None);
}

#[tokio::test]
async fn what_a_node_of_an_earlier_build_holds_is_brought_here_and_put_from_here() {
    let mut bench = Bench::new();
    let Hand::Node(before) = bench.node("b", Does::Leaves) else {
        panic!("a node");
    };
    let key = ShardKey {
        step: Step(STEP),
        generation: Generation(2),
        rank: 0,
    };
    let hands = vec![vec![Hand::Brought], vec![bench.node("c", Does::Puts)]];
    let putting = bench.putting_of(hands, [(key, vec![before])].into());
    let said = bench.put_this(putting).await;
    assert!(said.ends_with(", put by c, the leader"), "{said}");
    assert_eq!(bench.there().await, [STEP]);
}

#[tokio::test]
async fn one_is_made_at_a_time_and_what_was_left_half_way_goes_with_the_next() {
    let mut bench = Bench::new();
    let half = bench.dir.path().join("far/r/step-3.g2");
    std::fs::create_dir_all(&half).unwrap();
    std::fs::write(half.join("rank-0.safetensors"), b"half").unwrap();
    // Of a leader that leads by now.
    let beyond = bench.dir.path().join("far/r/step-5.g2");
    std::fs::create_dir_all(&beyond).unwrap();
    std::fs::write(beyond.join("rank-0.safetensors"), b"half").unwrap();
    let turn = bench.checkpointer.begin().unwrap();
    assert!(bench.checkpointer.begin().is_none());
    drop(turn);
    let hands = vec![vec![bench.node("b", Does::Puts)]];
    bench.put(hands).await;
    assert!(!half.join("rank-0.safetensors").exists());
    assert!(beyond.join("rank-0.safetensors").exists());
    let place = bench.remote.list("r").await.unwrap()[0].place.clone();
    bench.remote.pin(&place, true).await.unwrap();
    assert!(bench.remote.list("r").await.unwrap()[0].pinned);
}
