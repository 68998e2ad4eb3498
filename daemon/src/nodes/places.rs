//! Where shards are that are not on the leader's machine: nodes ask, and read them from each other.
use robust_proto::v1;
use robust_shared::ids::{Generation, Step};
use robust_shared::replicas::ShardKey;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Mutex as AsyncMutex;

use super::shards::Brought;

/// Which shard a message means.
pub fn key_of(held: &v1::HeldShard) -> ShardKey {
    ShardKey {
        step: Step(held.step),
        generation: Generation(held.generation),
        rank: held.rank,
    }
}

/// Who has what, as it is known now. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Places(Arc<Mutex<HashMap<ShardKey, v1::ShardPlaces>>>);

impl Places {
    /// These, and no others from now on.
    pub fn show(&self, all: HashMap<ShardKey, v1::ShardPlaces>) {
        *self.lock() = all;
    }

    /// That one is there now.
    pub fn show_one(&self, key: ShardKey, places: v1::ShardPlaces) {
        let mut all = self.lock();
        match places.places.is_empty() {
            true => drop(all.remove(&key)),
            false => drop(all.insert(key, places)),
        }
    }

    /// Where a shard is; nowhere, as far as is known.
    pub fn find(&self, wanted: &v1::HeldShard) -> v1::ShardPlaces {
        self.lock()
            .get(&key_of(wanted))
            .cloned()
            .unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ShardKey, v1::ShardPlaces>> {
        // An entry is replaced as a whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What came of bringing one shard.
type Cell = Arc<AsyncMutex<Option<Brought>>>;

/// Shards that are brought to the leader's machine, each by one caller at a time: a copy that is made safer, a checkpoint
/// and a restore may want the same. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Bringing(Arc<Mutex<HashMap<ShardKey, Cell>>>);

impl Bringing {
    /// What an earlier caller brought and is still there, else what `bring` brings.
    ///
    /// # Errors
    /// Those of `bring`.
    pub async fn once(
        &self,
        key: ShardKey,
        bring: impl Future<Output = Result<Brought, String>>,
    ) -> Result<Brought, String> {
        let cell = Arc::clone(self.lock().entry(key).or_default());
        let mut cell = cell.lock().await;
        if let Some(brought) = cell.as_ref().filter(|brought| brought.path.is_file()) {
            return Ok(brought.clone());
        }
        let brought = bring.await?;
        *cell = Some(brought.clone());
        Ok(brought)
    }

    /// Nobody asks for steps before this one any more.
    pub fn forget_before(&self, oldest: Step) {
        self.lock().retain(|key, _| key.step >= oldest);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ShardKey, Cell>> {
        // An entry is whole, whoever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::nodes::ShardDigests;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn a_shard_that_several_want_is_brought_once_and_again_when_it_is_gone() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("kept");
        let (bringing, times) = (Bringing::default(), AtomicU32::new(0));
        let key = key_of(&v1::HeldShard::default());
        let bring = || async {
            bringing
                .once(key, async {
                    times.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    std::fs::write(&path, b"image").unwrap();
                    let digests = ShardDigests {
                        xxh3: 1,
                        blake3: [1; 32],
                    };
                    let path = path.clone();
                    Ok(Brought { path, digests })
                })
                .await
        };
        let (one, other) = tokio::join!(bring(), bring());
        assert_eq!(one.unwrap(), other.unwrap());
        assert_eq!(times.load(Ordering::Relaxed), 1);
        std::fs::remove_file(&path).unwrap();
        bring().await.unwrap();
        assert_eq!(times.load(Ordering::Relaxed), 2);
        let failed = bringing.once(key, async { Err("no".to_owned()) });
        assert!(failed.await.is_ok(), "it is there");
        bringing.forget_before(Step(1));
        let failed = bringing.once(key, async { Err("no".to_owned()) });
        assert_eq!(failed.await.unwrap_err(), "no");
    }
}
