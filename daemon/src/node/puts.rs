//! Shards that this node puts into the job's object store, for checkpoints that the leader makes whole.
//!
//! ```text
//!  PutShard ─► the slot of a rank that runs here, or a copy ─► the key that the leader names ─► ShardPut
//! ```
use super::held::Held;
use crate::ckpt::{InMemory, put_shard};
use crate::nodes::taken;
use robust_proto::v1;
use robust_proto::v1::node_message::Body as Up;
use robust_remote::Remote;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Who is to be told, and of which order.
type Asked = (u64, mpsc::UnboundedSender<v1::NodeMessage>);

/// By key: the last order of what is being put.
type UnderWay = Arc<Mutex<HashMap<String, Asked>>>;

/// See the module's doc. Clones are one and the same.
#[derive(Clone, Debug)]
pub(super) struct Puts {
    held: Held,
    under_way: UnderWay,
    /// The object store as it was opened last.
    remote: Arc<tokio::sync::Mutex<Option<Remote>>>,
}

impl Puts {
    /// Of a node that has those shards.
    pub fn new(held: Held) -> Self {
        Self {
            held,
            under_way: Arc::default(),
            remote: Arc::default(),
        }
    }

    /// Puts a shard, and answers over `up`. Ordered again meanwhile, by another leader maybe, it answers that order.
    pub async fn put(&self, order: v1::PutShard, up: mpsc::UnboundedSender<v1::NodeMessage>) {
        let asked = (order.ticket, up);
        let before = lock(&self.under_way).insert(order.key.clone(), asked);
        if before.is_some() {
            return;
        }
        let under_way = Entry(&self.under_way, &order.key);
        let shard = order.shard.unwrap_or_default();
        // A shared folder whose server is away answers never.
        let limit = Duration::from_secs(order.limit_s.into());
        let put = timeout(limit, self.try_put(&order, &shard)).await;
        let put = put.unwrap_or_else(|_| Err(format!("it took longer than {} s", order.limit_s)));
        if let Err(why) = &put {
            tracing::warn!(
                "the shard of rank {} at step {} is not put: {why}",
                shard.rank,
                shard.step
            );
        }
        let Some((ticket, up)) = under_way.take() else {
            return;
        };
        let put = match put {
            Ok((xxh3, blake3)) => v1::ShardPut {
                ticket,
                shard: Some(v1::HeldShard {
                    xxh3: Some(xxh3),
                    ..shard
                }),
                blake3: blake3.to_vec(),
                error: String::new(),
            },
            Err(error) => v1::ShardPut {
                ticket,
                shard: Some(shard),
                blake3: Vec::new(),
                error,
            },
        };
        // Over a link that broke nobody waits for it any more.
        let body = Some(Up::Put(put));
        let _ = up.send(v1::NodeMessage { body });
    }

    async fn try_put(
        &self,
        order: &v1::PutShard,
        shard: &v1::HeldShard,
    ) -> Result<(u64, [u8; 32]), String> {
        let found = self.held.find(shard);
        let (held, path) = found.ok_or("it is not here any more")?;
        let remote = self.open(&order.url).await?;
        let taken = taken(shard.step, shard.generation, shard.bytes);
        let shard = InMemory {
            path,
            taken,
            xxh3: shard.xxh3.or(held.xxh3),
        };
        let limit = Duration::from_secs(order.limit_s.into());
        let put = put_shard(&remote, &order.key, shard, limit).await?;
        Ok((put.xxh3, put.blake3))
    }

    /// The object store. Opening a folder makes it, which can take as long as its server likes: one order does it, where
    /// nobody else waits for a processor.
    async fn open(&self, url: &str) -> Result<Remote, String> {
        let mut opened = self.remote.lock().await;
        if let Some(remote) = opened.as_ref().filter(|remote| remote.url() == url) {
            return Ok(remote.clone());
        }
        let url = url.to_owned();
        let opening = spawn_blocking(move || Remote::open(&url)).await;
        let remote = opening
            .map_err(|e| e.to_string())?
            .map_err(|e| e.to_string())?;
        *opened = Some(remote.clone());
        Ok(remote)
    }
}

/// What is under way, which it is no more when this is dropped.
struct Entry<'a>(&'a UnderWay, &'a str);

impl Entry<'_> {
    /// The last order of it.
    fn take(self) -> Option<Asked> {
        let last = lock(self.0).remove(self.1);
        // What is under way by now under the same key is another one's.
        std::mem::forget(self);
        last
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        lock(self.0).remove(self.1);
    }
}

fn lock(under_way: &UnderWay) -> MutexGuard<'_, HashMap<String, Asked>> {
    // An entry is whole, whoever panicked.
    under_way.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use robust_ckpt::slot::{Slot, SnapshotMemory};
    use robust_shared::ids::{Generation, Step};
    use std::path::Path;

    const KEY: &str = "r/step-4.g2/rank-1.safetensors";

    /// A node whose rank 1 took this at step 4, as gang 2.
    fn node(folder: &Path) -> Puts {
        let mut slot = Slot::open(&folder.join("trainer-1.slot0"), 5).unwrap();
        let image: &dyn SnapshotMemory = &b"image".as_slice();
        slot.write((Step(4), Generation(2)), 4, &[image]).unwrap();
        Puts::new(Held::new(folder.to_owned()))
    }

    fn order(folder: &Path, ticket: u64, generation: u64) -> v1::PutShard {
        v1::PutShard {
            ticket,
            shard: Some(v1::HeldShard {
                step: 4,
                generation,
                rank: 1,
                bytes: 5,
                xxh3: None,
            }),
            url: format!("file://{}/far", folder.display()),
            key: KEY.to_owned(),
            limit_s: 10,
        }
    }

    fn said(told: &mut mpsc::UnboundedReceiver<v1::NodeMessage>) -> v1::ShardPut {
        match told.try_recv().unwrap().body {
            Some(Up::Put(put)) => put,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_rank_s_slot_is_put_where_the_leader_says_and_another_gangs_is_not() {
        let temp = tempfile::tempdir().unwrap();
        let puts = node(temp.path());
        let (up, mut told) = mpsc::unbounded_channel();
        puts.put(order(temp.path(), 7, 2), up.clone()).await;
        let put = said(&mut told);
        let xxh3 = Some(xxhash_rust::xxh3::xxh3_64(b"image"));
        assert_eq!((put.ticket, put.error.as_str()), (7, ""));
        assert_eq!(put.shard.unwrap().xxh3, xxh3);
        assert_eq!(put.blake3, blake3::hash(b"image").as_bytes());
        let far = temp.path().join("far");
        assert_eq!(std::fs::read(far.join(KEY)).unwrap(), b"image");
        puts.put(order(temp.path(), 8, 1), up).await;
        let refused = said(&mut told);
        assert_eq!(refused.error, "it is not here any more");
    }

    #[tokio::test]
    async fn ordered_twice_it_is_put_once_and_the_last_order_is_answered() {
        let temp = tempfile::tempdir().unwrap();
        let puts = node(temp.path());
        let ((up, mut told), (next, mut heard)) =
            (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let first = puts.put(order(temp.path(), 7, 2), up);
        let second = puts.put(order(temp.path(), 8, 2), next);
        tokio::join!(first, second);
        assert_eq!(said(&mut heard).ticket, 8);
        assert!(told.try_recv().is_err(), "one answer, to the last order");
        assert!(lock(&puts.under_way).is_empty());
    }
}
