//! What other nodes hold in their memory. They give it to each other; it is brought to this machine where ranks of its
//! own need it, to be held here too, and for checkpoints.
use super::Source;
use crate::control::{GangWorkEvent, shard_from_wire};
use crate::nodes::{Brought, Expected, Orders, Shards, taken};
use crate::snapshots::SnapshotShards;
use crate::tell::Tell;
use futures::FutureExt;
use futures::future::BoxFuture;
use robust_ckpt::slot::Image;
use robust_proto::v1;
use robust_proto::v1::leader_message::Body as Down;
use robust_shared::dispatch::calls::Shard;
use robust_shared::ids::Step;
use robust_shared::replicas::ShardKey;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long nodes that the job knows may take to join again after this daemon was restarted: they try
/// every second.
const REJOIN: Duration = Duration::from_secs(10);
/// How long a node may send nothing of a shard that it was told to bring back.
const SILENCE: Duration = Duration::from_secs(10);

/// How long a shard may take, and the bytes a second that it has to come with beyond that.
const LEAST_TIME: Duration = Duration::from_secs(60);
const SLOWEST: u64 = 10_000_000;

/// Who holds what, as nodes tell it.
#[derive(Clone, Debug, Default)]
pub struct PeerView {
    /// By shard.
    pub held: BTreeMap<ShardKey, Vec<PeerHolder>>,
    /// Nodes of the job that have not joined yet, or not again.
    pub away: usize,
    /// Nodes of the job besides this one.
    pub nodes: usize,
}

/// A node that holds a shard.
#[derive(Clone, Debug)]
pub struct PeerHolder {
    /// Its name.
    pub name: String,
    /// The digest that it knows.
    pub xxh3: Option<u64>,
    /// The way to it.
    pub orders: Orders,
}

/// Which ranks' shards have to be on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Needed {
    /// All.
    All,
    /// Those of these ranks.
    Of(Vec<u32>),
}

impl Needed {
    fn has(&self, rank: u32) -> bool {
        match self {
            Self::All => true,
            Self::Of(ranks) => ranks.contains(&rank),
        }
    }
}

/// The way to what other nodes hold.
#[derive(Clone)]
pub struct Peers {
    /// Who holds what.
    pub view: watch::Receiver<Arc<PeerView>>,
    /// Where it arrives.
    pub shards: Shards,
    /// Told what is in this machine's memory, too.
    pub events: Tell<GangWorkEvent>,
}

/// Other nodes' memory.
pub struct PeerMemory {
    known: BTreeMap<Step, SnapshotShards>,
    peers: Peers,
    needed: Needed,
}

impl PeerMemory {
    /// Of the snapshots that are known, of which these shards have to be brought here.
    pub fn new(known: BTreeMap<Step, SnapshotShards>, peers: Peers, needed: Needed) -> Self {
        Self {
            known,
            peers,
            needed,
        }
    }

    /// The steps of which every shard is here or held by somebody.
    fn whole(&self, view: &PeerView, limit: Step) -> Vec<Step> {
        let known = self.known.range(..=limit).rev();
        let whole = known.filter(|(step, snapshot)| {
            let mut shards = (0..).zip(&snapshot.shards);
            shards.all(|(rank, shard)| {
                let key = key(**step, snapshot, rank);
                is_here(shard) || view.held.contains_key(&key)
            })
        });
        whole.map(|(step, _)| *step).collect()
    }

    async fn look(&self, limit: Step) -> Result<Vec<Step>, String> {
        let mut view = self.peers.view.clone();
        let newest = self
            .known
            .range(..=limit)
            .next_back()
            .map(|(step, _)| *step);
        let settled = |view: &Arc<PeerView>| {
            view.away == 0 || newest.is_none_or(|n| self.whole(view, limit).contains(&n))
        };
        // Those that stay away longer are not waited for: what they hold is not to be had.
        let waited = timeout(REJOIN, view.wait_for(settled)).await;
        let late = waited.is_err();
        drop(waited);
        let view = Arc::clone(&view.borrow());
        let steps = self.whole(&view, limit);
        match (steps.is_empty(), view.nodes, late) {
            (true, 0, _) => Err("the job has no other node".to_owned()),
            (true, _, true) => Err(format!(
                "{} of {} nodes did not join again within {REJOIN:?}",
                view.away, view.nodes
            )),
            _ => Ok(steps),
        }
    }

    /// The step's shards once those that are needed here are here. After a restart nodes that hold some of them may not
    /// have joined again yet.
    pub async fn gather(&self, step: Step) -> Result<Vec<Shard>, String> {
        self.look(step).await?;
        self.bring(step).await
    }

    async fn bring(&self, step: Step) -> Result<Vec<Shard>, String> {
        let known = self.known.get(&step).ok_or("it is not known any more")?;
        // All at once: they come from several nodes.
        let bringing = (0..).zip(&known.shards).map(|(rank, shard)| async move {
            match is_here(shard) || !self.needed.has(rank) {
                true => Ok(shard.clone()),
                false => self.bring_rank(step, rank).await,
            }
        });
        let results = futures::future::join_all(bringing).await;
        let shards = results.into_iter().collect::<Result<Vec<_>, String>>()?;
        Ok(shards.iter().map(shard_from_wire).collect())
    }

    /// Brings one shard here, and tells of it.
    pub async fn bring_rank(&self, step: Step, rank: u32) -> Result<v1::SnapshotReply, String> {
        let known = self.known.get(&step);
        let shard = known.and_then(|known| known.shards.get(rank as usize));
        let (known, shard) = known.zip(shard).ok_or("it is not known any more")?;
        let key = key(step, known, rank);
        let bringing = self.bring_one(key, shard);
        let Brought { path, digests } = self.peers.shards.bringing().once(key, bringing).await?;
        let shard = v1::SnapshotReply {
            path: path.display().to_string(),
            xxh3: Some(digests.xxh3),
            blake3: Some(digests.blake3.to_vec()),
            ..shard.clone()
        };
        let brought = GangWorkEvent::Brought {
            key,
            shard: shard.clone(),
        };
        // When the driver is gone nobody wants to know.
        let _ = self.peers.events.tell(brought);
        Ok(shard)
    }

    /// From whoever has it and whose copy is what it should be.
    async fn bring_one(&self, key: ShardKey, shard: &v1::SnapshotReply) -> Result<Brought, String> {
        let holders = self.peers.view.borrow().held.get(&key).cloned();
        let mut why = format!("nobody holds the shard of rank {}", key.rank);
        for holder in holders.unwrap_or_default() {
            match self.ask(key, shard, &holder).await {
                Ok(brought) => return Ok(brought),
                Err(reason) => {
                    why = format!(
                        "the shard of rank {} on {}: {reason}",
                        key.rank, holder.name
                    );
                }
            }
        }
        Err(why)
    }

    async fn ask(
        &self,
        key: ShardKey,
        shard: &v1::SnapshotReply,
        holder: &PeerHolder,
    ) -> Result<Brought, String> {
        let of = (key.step.0, key.rank);
        let mut expected = self.peers.shards.expect(of, &holder.name, shard.bytes);
        let wanted = shard.xxh3.or(holder.xxh3);
        let give = v1::GiveShard {
            shard: Some(v1::HeldShard {
                step: key.step.0,
                generation: key.generation.0,
                rank: key.rank,
                bytes: shard.bytes,
                xxh3: wanted,
            }),
        };
        let body = Some(Down::Give(give));
        let most = LEAST_TIME + Duration::from_secs(shard.bytes / SLOWEST);
        let left = || "it left".to_owned();
        let order = holder.orders.send(v1::LeaderMessage { body });
        order.map_err(|_| left())?;
        let arriving = async {
            tokio::select! {
                here = timeout(most, patient(&mut expected)) => {
                    here.unwrap_or_else(|_| Err(format!("it did not come within {most:?}")))
                }
                () = holder.orders.closed() => Err(left()),
                () = self.refused(key, &holder.name) => Err("it does not have it any more".to_owned()),
            }
        };
        let brought = arriving.await?;
        let xxh3 = brought.digests.xxh3;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != xxh3) {
            return Err(format!(
                "it has the digest {xxh3:016x} instead of {wanted:016x}"
            ));
        }
        // Other bytes with that digest can be made, and what it holds was made here.
        match self.blake3_of(shard) {
            Some(sent) if sent != brought.digests.blake3 => {
                Err("it is not what it was sent: its BLAKE3 digest is another".to_owned())
            }
            _ => Ok(brought),
        }
    }

    /// Of a shard that was sent to be copied; none where no life of this build did so.
    pub fn blake3_of(&self, shard: &v1::SnapshotReply) -> Option<[u8; 32]> {
        let recorded = shard.blake3.as_deref();
        let recorded = recorded.and_then(|blake3| blake3.try_into().ok());
        let read = || Some(self.peers.shards.digest_read(shard)?.blake3);
        recorded.or_else(read)
    }

    /// Waits until a node says that it does not hold a shard.
    async fn refused(&self, key: ShardKey, name: &str) {
        let mut view = self.peers.view.clone();
        let gone = |view: &Arc<PeerView>| {
            let holders = view.held.get(&key);
            holders.is_none_or(|all| all.iter().all(|h| h.name != name))
        };
        if view.wait_for(gone).await.is_err() {
            // The driver is gone; so will be this restore.
            std::future::pending::<()>().await;
        }
    }
}

/// Waits for as long as bytes come.
async fn patient(expected: &mut Expected) -> Result<Brought, String> {
    loop {
        let before = expected.came();
        match timeout(SILENCE, expected.here()).await {
            Ok(Some(here)) => return Ok(here),
            Ok(None) => return Err("this daemon is ending".to_owned()),
            Err(_) if expected.came() > before => {}
            Err(_) => return Err(format!("nothing came for {SILENCE:?}")),
        }
    }
}

fn key(step: Step, snapshot: &SnapshotShards, rank: u32) -> ShardKey {
    ShardKey {
        step,
        generation: snapshot.generation,
        rank,
    }
}

/// Whether this machine's memory still has it: a slot may hold another step by now.
fn is_here(shard: &v1::SnapshotReply) -> bool {
    let taken = taken(shard.step, shard.generation, shard.bytes);
    Image::open(Path::new(&shard.path), taken).is_ok()
}

impl Source for PeerMemory {
    fn name(&self) -> &'static str {
        "peer memory"
    }

    fn steps(&self, limit: Step) -> BoxFuture<'_, Result<Vec<Step>, String>> {
        self.look(limit).boxed()
    }

    fn shards(&self, step: Step) -> BoxFuture<'_, Result<Vec<Shard>, String>> {
        self.bring(step).boxed()
    }
}

#[cfg(test)]
#[path = "../../../../shared/src/forge.rs"]
mod forge;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_shared::ids::Generation;
    use tokio::sync::mpsc;
    use xxhash_rust::xxh3::xxh3_64;

    const STEP: u64 = 3;

    fn image() -> Vec<u8> {
        (0..8192_u32).map(|at| (at * 31 + at / 251) as u8).collect()
    }

    /// What a restore says when it asks node `b`, which gives these bytes, for the shard that the leader lost.
    async fn brought(gives: &[u8], sent: Option<&[u8]>) -> Result<Vec<Shard>, String> {
        let temp = tempfile::tempdir().unwrap();
        let shards = Shards::new(temp.path().to_owned(), temp.path().join("ckpt"));
        let lost = v1::SnapshotReply {
            step: STEP,
            generation: 1,
            bytes: gives.len() as u64,
            path: temp.path().join("lost").display().to_string(),
            xxh3: Some(xxh3_64(gives)),
            blake3: sent.map(|sent| blake3::hash(sent).as_bytes().to_vec()),
            ..Default::default()
        };
        let snapshot = SnapshotShards {
            generation: Generation(1),
            shards: vec![lost],
            homes: Vec::new(),
        };
        let (orders, mut given) = mpsc::unbounded_channel();
        let holder = PeerHolder {
            name: "b".to_owned(),
            xxh3: Some(xxh3_64(gives)),
            orders,
        };
        let held = [(key(Step(STEP), &snapshot, 0), vec![holder])];
        let view = PeerView {
            held: held.into(),
            away: 0,
            nodes: 1,
        };
        let (_kept, view) = watch::channel(Arc::new(view));
        let (events, _heard) = mpsc::unbounded_channel::<GangWorkEvent>();
        let peers = Peers {
            view,
            shards: shards.clone(),
            events: Tell::into_channel(&events),
        };
        let memory = PeerMemory::new([(Step(STEP), snapshot)].into(), peers, Needed::All);
        let node = async {
            given.recv().await.unwrap();
            let header = v1::ShardHeader {
                step: STEP,
                bytes: gives.len() as u64,
                ..Default::default()
            };
            let mut keeping = shards.keep(header, "b").unwrap();
            keeping.add(gives).unwrap();
            keeping.finish(Some(xxh3_64(gives))).unwrap();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            brought = memory.bring(Step(STEP)) => brought,
            () = node => Err("the node ended".to_owned()),
        }
    }

    #[tokio::test]
    async fn a_copy_made_to_have_the_digest_of_what_was_lost_does_not_come_back() {
        let image = image();
        assert!(brought(&image, Some(&image)).await.is_ok());
        let forged = forge::same_xxh3(&image, &[0x3f; 8192]);
        assert_eq!(xxh3_64(&forged), xxh3_64(&image), "XXH3 does not tell");
        let refused = brought(&forged, Some(&image)).await.unwrap_err();
        assert_eq!(
            refused,
            "the shard of rank 0 on b: it is not what it was sent: its BLAKE3 digest is another"
        );
    }

    #[tokio::test]
    async fn a_copy_that_an_earlier_build_had_made_comes_back_by_its_xxh3() {
        assert!(brought(&image(), None).await.is_ok());
    }
}
