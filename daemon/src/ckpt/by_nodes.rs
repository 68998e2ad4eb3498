//! Checkpoints that are put into the object store by the machines that hold their shards, and made whole by the leader.
//!
//! ```text
//!  offered ─┬─ rank 0 ─► the node of the rank ── could not, or left ──► a node with a copy ── .. ──► nobody: failed
//!           ├─ rank 1 ─► ..                                      │ put
//!           └─ ..                                                ▼
//!              all ranks ─► the leader looks whether they are there ─► signature ─► manifest ─► what need not stay goes
//! ```
//! One is made at a time. Whatever fails, no manifest names what is not there, the job goes on, and the next checkpoint is
//! another chance. A leader that dies meanwhile leaves shards without a manifest, which go when a later checkpoint is there.
use super::remote::lock;
use super::save::now;
use super::worker::Turn;
use super::{CkptEvent, InMemory, RemoteConfig, RemoteStanding, Request, put_shard};
use crate::control::{PeerHolder, PeerMemory};
use crate::nodes::{Puts, taken};
use crate::store::{Store, WayBack};
use robust_ckpt::{Checkpoint, Shard};
use robust_proto::v1;
use robust_proto::v1::leader_message::Body as Down;
use robust_remote::{Place, PutShard, RemoteError};
use robust_shared::ids::Step;
use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long an upload may take, and the bytes a second that it has to make beyond that. A store that is away is tried for
/// a minute by its client.
const LEAST_TIME: Duration = Duration::from_secs(120);
const SLOWEST: u64 = 10_000_000;
/// How long a node may take to say that its upload took too long.
const ANSWER: Duration = Duration::from_secs(20);

/// How long one look at the store, or what makes a checkpoint whole there, may take: a shared folder whose server is away
/// answers never.
const LOOK: Duration = Duration::from_secs(120);
/// Between two looks for what is there at the begin, while the store is away.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// Who can put a shard, and how.
#[derive(Clone, Debug)]
pub enum Hand {
    /// This machine: it lies there.
    Here(PathBuf),
    /// A node that holds it.
    Node(PeerHolder),
    /// This machine, once it was brought here: nodes that hold it are of an earlier build.
    Brought,
}

/// A checkpoint to be put.
pub struct Putting {
    /// What it is made of.
    pub request: Request,
    /// The same shards, with what is known of them, and who can put each: the first is asked first.
    pub shards: Vec<(v1::SnapshotReply, Vec<Hand>)>,
    /// Brings shards here.
    pub memory: PeerMemory,
    /// Where nodes' answers arrive.
    pub puts: Puts,
}

/// See the module's doc. Clones are one and the same.
#[derive(Clone)]
pub struct ByNodes {
    config: Arc<RemoteConfig>,
    standing: Arc<Mutex<RemoteStanding>>,
    store: Store,
}

impl ByNodes {
    /// Into that object store. `store` keeps the trajectories of all steps until it was looked which checkpoints are there
    /// ([`ByNodes::look`]).
    pub fn new(config: RemoteConfig, store: Store) -> Self {
        store.set_way_back(WayBack::Unknown);
        Self {
            config: Arc::new(config),
            standing: Arc::default(),
            store,
        }
    }

    /// Looks which checkpoints there are, until the object store says.
    pub async fn look(self) {
        while let Err(error) = self.look_back().await {
            tracing::warn!("which checkpoints are in the object store is not known: {error}");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// What a way back needs is after the oldest of the newest checkpoints that retention keeps.
    async fn look_back(&self) -> Result<(), RemoteError> {
        let RemoteConfig {
            remote, run, keep, ..
        } = &*self.config;
        let kept = within(remote.url(), remote.list(run)).await?;
        let usable = kept.iter().rev().filter(|kept| kept.manifest.is_ok());
        let newest = usable.take(keep.last.max(1));
        let oldest = newest.map(|kept| kept.place.step).min();
        self.store.set_way_back(WayBack::Elsewhere(oldest));
        Ok(())
    }

    /// Whether a step comes too soon after the last one that was put.
    pub fn is_soon(&self, step: Step) -> bool {
        lock(&self.standing).is_soon(step, self.config.every)
    }

    /// How it stands.
    pub fn standing(&self) -> RemoteStanding {
        lock(&self.standing).clone()
    }

    /// Where to.
    pub fn url(&self) -> &str {
        self.config.remote.url()
    }

    /// The longest that a checkpoint may take of shards of up to so many bytes, of each of which at most so many can put it.
    pub fn patience(bytes: u64, hands: u32) -> Duration {
        (limit(bytes) + ANSWER) * hands.max(1) + LOOK * 2
    }

    /// Puts a checkpoint, and tells what came of it.
    pub async fn put(self, turn: Turn, putting: Putting) {
        let begun = Instant::now();
        let (step, generation) = (putting.request.step, putting.request.generation);
        let bytes = putting.shards.iter().map(|(shard, _)| shard.bytes).sum();
        let put = self.try_put(putting).await;
        let url = self.url().to_owned();
        lock(&self.standing).note(step, &put);
        let event = match put {
            Ok(by) => CkptEvent::Put {
                step,
                generation,
                bytes,
                took: begun.elapsed(),
                url,
                by,
            },
            Err(error) => return turn.end(CkptEvent::NotUploaded { step, url, error }),
        };
        let tidied = timeout(LOOK, self.config.tidy(step)).await;
        let untidy = |_| Err(format!("after the upload of step {step}: {}", late()));
        if let Err(text) = tidied.unwrap_or_else(untidy) {
            turn.tell(CkptEvent::Untidy(text));
        }
        if let Err(error) = self.look_back().await {
            // What was kept so far stays kept.
            tracing::warn!("which checkpoints are in the object store is not known: {error}");
        }
        turn.tidy(step, event);
    }

    /// Says who put it; nobody where it was there already.
    async fn try_put(&self, putting: Putting) -> Result<Vec<String>, RemoteError> {
        let RemoteConfig { remote, run, .. } = &*self.config;
        let Request {
            step,
            generation,
            consumed,
            reward,
            tensors,
            ..
        } = &putting.request;
        let place = Place {
            run: run.clone(),
            generation: *generation,
            step: *step,
        };
        let known = putting.shards.iter().map(|(shard, _)| shard);
        let known: Option<Vec<_>> = known.map(|s| Some((s.bytes, s.xxh3?))).collect();
        let is_this = |there: &Checkpoint| {
            let shards = there.shards.iter().map(|s| (s.bytes, s.xxh3));
            known
                .as_ref()
                .is_some_and(|known| shards.eq(known.iter().copied()))
                && there.consumed == *consumed
        };
        if within(remote.url(), remote.make_way(&place, is_this)).await? {
            return Ok(Vec::new());
        }
        let ranks = (0..putting.shards.len()).map(|at| self.put_rank(&putting, &place, at));
        let put = futures::future::join_all(ranks).await.into_iter();
        let put: Vec<(String, PutShard)> = put.collect::<Result<_, RemoteError>>()?;
        let shards = (0..).zip(&putting.shards).zip(&put);
        let shard =
            |((rank, (shard, _)), (_, put)): ((u32, &(v1::SnapshotReply, _)), &(_, PutShard))| {
                Shard {
                    rank,
                    path: PathBuf::new(),
                    bytes: shard.bytes,
                    xxh3: put.xxh3,
                }
            };
        let checkpoint = Checkpoint {
            step: *step,
            generation: *generation,
            dir: PathBuf::new(),
            shards: shards.map(shard).collect(),
            consumed: consumed.clone(),
            reward: *reward,
            at: Some(now()),
            adam_step: putting.shards.first().and_then(|(s, _)| s.adam_step),
            tensors: tensors.clone(),
        };
        let named: Vec<[u8; 32]> = put.iter().map(|(_, put)| put.blake3).collect();
        within(remote.url(), remote.complete(run, &checkpoint, &named)).await?;
        let mut by: Vec<String> = put.into_iter().map(|(by, _)| by).collect();
        by.sort();
        by.dedup();
        Ok(by)
    }

    /// Has one shard put by whoever can; who did.
    async fn put_rank(
        &self,
        putting: &Putting,
        place: &Place,
        at: usize,
    ) -> Result<(String, PutShard), RemoteError> {
        let rank = u32::try_from(at).unwrap_or(u32::MAX);
        let key = self.config.remote.shard_key(place, rank);
        let (shard, hands) = &putting.shards[at];
        let mut why = Vec::new();
        for hand in hands {
            let (by, put) = match hand {
                Hand::Here(path) => (HERE, self.put_here(&key, shard, path.clone()).await),
                Hand::Node(holder) => {
                    let put = self.ask((rank, &key), shard, holder, &putting.puts).await;
                    (holder.name.as_str(), put)
                }
                Hand::Brought => (HERE, self.bring(putting, (rank, &key)).await),
            };
            let named = putting.memory.blake3_of(shard);
            match put.and_then(|put| as_known(shard.xxh3, named, put)) {
                Ok(put) => {
                    lock(&self.standing).sent_bytes += shard.bytes;
                    return Ok((by.to_owned(), put));
                }
                Err(reason) => why.push(format!("{by}: {reason}")),
            }
        }
        let reason = match why.is_empty() {
            true => "no machine that is there holds it".to_owned(),
            false => why.join("; "),
        };
        let what = format!("the shard of rank {rank}");
        Err(RemoteError::Bad { what, reason })
    }

    async fn put_here(
        &self,
        key: &str,
        shard: &v1::SnapshotReply,
        path: PathBuf,
    ) -> Result<PutShard, String> {
        let here = InMemory {
            path,
            taken: taken(shard.step, shard.generation, shard.bytes),
            xxh3: shard.xxh3,
        };
        put_shard(&self.config.remote, key, here, limit(shard.bytes)).await
    }

    async fn bring(&self, putting: &Putting, (rank, key): (u32, &str)) -> Result<PutShard, String> {
        let step = putting.request.step;
        let brought = putting.memory.bring_rank(step, rank).await?;
        let path = PathBuf::from(&brought.path);
        self.put_here(key, &brought, path).await
    }

    /// Has a node put it, for as long as its link and the limit last.
    async fn ask(
        &self,
        (rank, key): (u32, &str),
        shard: &v1::SnapshotReply,
        holder: &PeerHolder,
        puts: &Puts,
    ) -> Result<PutShard, String> {
        let wanted = v1::HeldShard {
            step: shard.step,
            generation: shard.generation,
            rank,
            bytes: shard.bytes,
            xxh3: shard.xxh3.or(holder.xxh3),
        };
        let mut expected = puts.expect(&holder.name, wanted);
        let limit = limit(shard.bytes);
        let order = Down::Put(v1::PutShard {
            ticket: expected.ticket(),
            shard: Some(wanted),
            url: self.url().to_owned(),
            key: key.to_owned(),
            limit_s: u32::try_from(limit.as_secs()).unwrap_or(u32::MAX),
        });
        let left = || "it left".to_owned();
        let sent = holder.orders.send(v1::LeaderMessage { body: Some(order) });
        sent.map_err(|_| left())?;
        let most = limit + ANSWER;
        tokio::select! {
            put = timeout(most, expected.put()) => {
                let put = put.unwrap_or_else(|_| Err(format!("it did not put it within {most:?}")));
                put.map(|(xxh3, blake3)| PutShard { xxh3, blake3 })
            }
            () = holder.orders.closed() => Err(left()),
        }
    }
}

/// What this machine is called among those that put something.
const HERE: &str = "the leader";

/// What the store answers, within [`LOOK`].
async fn within<T>(
    url: &str,
    asked: impl Future<Output = Result<T, RemoteError>>,
) -> Result<T, RemoteError> {
    let what = url.to_owned();
    let late = |_| {
        Err(RemoteError::Bad {
            what,
            reason: late(),
        })
    };
    timeout(LOOK, asked).await.unwrap_or_else(late)
}

fn late() -> String {
    format!(
        "the object store did not answer within {} s",
        LOOK.as_secs()
    )
}

/// What was put, if it is what is known of the shard.
fn as_known(
    xxh3: Option<u64>,
    blake3: Option<[u8; 32]>,
    put: PutShard,
) -> Result<PutShard, String> {
    let other = xxh3.is_some_and(|known| known != put.xxh3)
        || blake3.is_some_and(|known| known != put.blake3);
    match other {
        true => Err("what it put has another digest than the snapshot".to_owned()),
        false => Ok(put),
    }
}

fn limit(bytes: u64) -> Duration {
    LEAST_TIME + Duration::from_secs(bytes / SLOWEST)
}

#[cfg(test)]
#[path = "by_nodes_tests.rs"]
mod tests;
