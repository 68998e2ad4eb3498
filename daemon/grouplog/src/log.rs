//! Writing groups, and reading them back as one chain.
use crate::group::{Entry, Position};
use crate::keys;
use crate::{Digest, LogError};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path as Key;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use robust_remote::Remote;
use std::collections::HashMap;
use std::sync::Arc;

/// Objects that are read or removed at a time.
const AT_A_TIME: usize = 16;
/// So few groups are fetched one after the other, each named by the next; more are listed first and fetched together.
const FEW: u64 = 8;

/// The log of one life of a job. Cheap to clone.
#[derive(Clone, Debug)]
pub struct GroupLog {
    pub(crate) store: Arc<dyn ObjectStore>,
    /// Below which all of it is.
    pub(crate) root: Key,
    run: String,
}

impl GroupLog {
    /// The log of the life `run` of the job `job`.
    #[must_use]
    pub fn new(remote: &Remote, job: &str, run: &str) -> Self {
        let root = remote.root().clone().join(job).join(run);
        Self {
            store: Arc::clone(remote.store()),
            root,
            run: run.to_owned(),
        }
    }

    /// The life that it is of.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// The life of a job whose log is written now; none where none ever was.
    ///
    /// # Errors
    /// When the store cannot be reached.
    pub async fn current(remote: &Remote, job: &str) -> Result<Option<String>, LogError> {
        let key = keys::current(&remote.root().clone().join(job));
        let found = get(remote.store(), &key).await?;
        let text = |bytes: Bytes| String::from_utf8(bytes.to_vec());
        let named = found.map(text).transpose();
        let named = named.map_err(|_| LogError::damaged(&key, "it names no life of a job"))?;
        Ok(named.map(|name| name.trim().to_owned()))
    }

    /// Says that this life's log is the job's from now on.
    ///
    /// # Errors
    /// When the store cannot be reached.
    pub async fn become_current(&self) -> Result<(), LogError> {
        let mut parts: Vec<_> = self.root.parts().collect();
        parts.pop();
        let key = keys::current(&Key::from_iter(parts));
        let put = self.store.put(&key, PutPayload::from(self.run.clone()));
        put.await.map(drop).map_err(LogError::store("put", &key))
    }

    /// Whether `name` can write the log now, which is found out by writing beside it.
    ///
    /// # Errors
    /// When it cannot.
    pub async fn prove(&self, name: &str) -> Result<(), LogError> {
        let key = keys::proof(&self.root, name);
        let put = self.store.put(&key, PutPayload::from_static(b"writes"));
        put.await.map(drop).map_err(LogError::store("put", &key))
    }

    /// Puts a group that [`crate::Group::encode`] gave. Putting the very same again is fine: its answer may have been lost.
    ///
    /// # Errors
    /// When the store cannot be reached, or another controller has put something there.
    pub async fn put(&self, at: &Position, bytes: Bytes) -> Result<(), LogError> {
        let key = keys::group(&self.root, at.epoch, at.number);
        let create = PutOptions::from(PutMode::Create);
        match self
            .store
            .put_opts(&key, bytes.clone().into(), create)
            .await
        {
            Ok(_) => Ok(()),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {
                match get(&self.store, &key).await? {
                    Some(found) if found == bytes => Ok(()),
                    _ => Err(LogError::Taken {
                        key: key.to_string(),
                    }),
                }
            }
            Err(error) => Err(LogError::store("put", &key)(error)),
        }
    }

    /// The group `number` of `epoch`, if it is there.
    ///
    /// # Errors
    /// When the store cannot be reached, or it is damaged.
    pub async fn group(&self, epoch: u64, number: u64) -> Result<Option<Entry>, LogError> {
        let key = keys::group(&self.root, epoch, number);
        let Some(bytes) = get(&self.store, &key).await? else {
            return Ok(None);
        };
        let entry = Entry::decode(&bytes).map_err(|why| LogError::damaged(&key, why))?;
        match (entry.at.epoch, entry.at.number) == (epoch, number) {
            true => Ok(Some(entry)),
            false => Err(LogError::damaged(&key, format!("it is {}", entry.at))),
        }
    }

    /// The epoch and number of every group that is there, in that order.
    ///
    /// # Errors
    /// When the store cannot be reached.
    pub async fn groups(&self) -> Result<Vec<(u64, u64)>, LogError> {
        let folder = keys::groups(&self.root);
        let listing = self.store.list(Some(&folder));
        let listed: Vec<_> = listing
            .map_ok(|object| keys::group_of(&object.location))
            .try_collect()
            .await
            .map_err(LogError::store("list", &folder))?;
        let mut groups: Vec<_> = listed.into_iter().flatten().collect();
        groups.sort_unstable();
        Ok(groups)
    }

    /// Where the log stands that a single controller wrote: the last group of its newest term; none where there is no
    /// group.
    ///
    /// # Errors
    /// When the store cannot be reached, or the group is damaged.
    pub async fn tip(&self) -> Result<Option<Entry>, LogError> {
        match self.groups().await?.last() {
            Some(&(epoch, number)) => self.group(epoch, number).await,
            None => Ok(None),
        }
    }

    /// The groups after `from` up to `to`, oldest first; none when no chain leads from one to the other: then what
    /// stands at `from` has something that was never acknowledged.
    ///
    /// # Errors
    /// When the store cannot be reached, a group is damaged, or one is missing.
    pub async fn chain(
        &self,
        from: &Position,
        to: &Position,
    ) -> Result<Option<Vec<Entry>>, LogError> {
        if to.number < from.number {
            return Ok(None);
        }
        let mut fetched = HashMap::new();
        if to.number - from.number > FEW {
            fetched = self.fetch(from.number, to.number).await?;
        }
        let mut chain = Vec::new();
        let mut next = *to;
        while next.number > from.number {
            let entry = match fetched.remove(&next.digest) {
                Some(entry) => entry,
                None => self.named(&next).await?,
            };
            next = entry.after;
            chain.push(entry);
        }
        chain.reverse();
        Ok((next == *from).then_some(chain))
    }

    /// The group at a position that a later one names.
    async fn named(&self, at: &Position) -> Result<Entry, LogError> {
        let missing = LogError::Gap {
            number: at.number,
            until: at.number + 1,
        };
        let entry = self.group(at.epoch, at.number).await?.ok_or(missing)?;
        match entry.at == *at {
            true => Ok(entry),
            false => {
                let key = keys::group(&self.root, at.epoch, at.number);
                let other = "it is not the group that the one after it names";
                Err(LogError::damaged(&key, other))
            }
        }
    }

    async fn fetch(&self, from: u64, to: u64) -> Result<HashMap<Digest, Entry>, LogError> {
        let groups = self.groups().await?.into_iter();
        let wanted = groups.filter(|&(_, number)| from < number && number <= to);
        let fetching = wanted.map(|(epoch, number)| self.group(epoch, number));
        stream::iter(fetching)
            .buffer_unordered(AT_A_TIME)
            .filter_map(|found| async { found.transpose() })
            .map_ok(|entry| (entry.at.digest, entry))
            .try_collect()
            .await
    }

    /// Whether nobody has written in a later term than this.
    ///
    /// # Errors
    /// When somebody has, or the store cannot be reached.
    pub async fn is_newest(&self, epoch: u64) -> Result<(), LogError> {
        let group = self.groups().await?.last().copied();
        let bases = self.bases().await?;
        let base = bases.last().map(|base| (base.at.epoch, base.at.number));
        match group.max(base) {
            Some((later, number)) if later > epoch => Err(LogError::Taken {
                key: keys::group(&self.root, later, number).to_string(),
            }),
            _ => Ok(()),
        }
    }

    /// Removes the groups up to `number`, which a base has, but none of a later term than `epoch`.
    ///
    /// # Errors
    /// When the store cannot be reached.
    pub(crate) async fn remove_groups(&self, number: u64, epoch: u64) -> Result<(), LogError> {
        let groups = self.groups().await?.into_iter();
        let old = groups.filter(|&(e, n)| n <= number && e <= epoch);
        let keys = old.map(|(epoch, number)| keys::group(&self.root, epoch, number));
        self.remove(keys.collect()).await
    }

    /// Removes objects; one that is gone already is removed.
    pub(crate) async fn remove(&self, keys: Vec<Key>) -> Result<(), LogError> {
        let keys = stream::iter(keys.into_iter().map(Ok)).boxed();
        let mut removing = self.store.delete_stream(keys);
        while let Some(removed) = removing.next().await {
            match removed {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(LogError::store("remove groups of", &self.root)(error)),
            }
        }
        Ok(())
    }
}

/// An object whole; none where there is none.
pub(crate) async fn get(
    store: &Arc<dyn ObjectStore>,
    key: &Key,
) -> Result<Option<Bytes>, LogError> {
    let doing = LogError::store("read", key);
    match store.get(key).await {
        Ok(found) => Ok(Some(found.bytes().await.map_err(doing)?)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(doing(error)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Group;

    fn log() -> (tempfile::TempDir, GroupLog) {
        let dir = tempfile::tempdir().unwrap();
        let remote = Remote::open(&format!("file://{}", dir.path().display())).unwrap();
        (dir, GroupLog::new(&remote, "job", "run"))
    }

    async fn put(log: &GroupLog, epoch: u64, after: &Position, text: &str) -> Position {
        let number = after.number + 1;
        let writes = vec![(text.as_bytes().to_vec(), Some(vec![1]))];
        let (bytes, at) = Group { number, writes }.encode(epoch, after);
        log.put(&at, bytes).await.unwrap();
        at
    }

    #[tokio::test]
    async fn groups_are_read_back_as_a_chain_however_many_and_from_wherever() {
        let (_dir, log) = log();
        let begin = Position::of_base("run", 3, 5);
        let mut all = vec![begin];
        for n in 0..30u64 {
            let after = *all.last().unwrap();
            all.push(put(&log, 3 + n / 10, &after, &n.to_string()).await);
        }
        let tip = log.tip().await.unwrap().unwrap();
        assert_eq!(tip.at, *all.last().unwrap());
        for (i, from) in all.iter().enumerate() {
            let chain = log.chain(from, &tip.at).await.unwrap().unwrap();
            let places: Vec<_> = chain.iter().map(|e| e.at).collect();
            assert_eq!(places, all[i + 1..]);
        }
    }

    #[tokio::test]
    async fn what_was_written_by_a_controller_that_lost_its_place_is_in_no_chain() {
        let (_dir, log) = log();
        let begin = Position::of_base("run", 1, 0);
        let first = put(&log, 1, &begin, "a").await;
        let lost = put(&log, 1, &first, "lost").await;
        let second = put(&log, 2, &first, "b").await;
        let third = put(&log, 2, &second, "c").await;
        let chain = log.chain(&first, &third).await.unwrap().unwrap();
        assert_eq!(
            chain.iter().map(|e| e.at).collect::<Vec<_>>(),
            [second, third]
        );
        assert_eq!(log.chain(&lost, &third).await.unwrap(), None);
        assert_eq!(log.chain(&third, &second).await.unwrap(), None);
        assert_eq!(log.tip().await.unwrap().unwrap().at, third);
    }

    #[tokio::test]
    async fn the_same_group_may_be_put_again_and_another_one_may_not() {
        let (_dir, log) = log();
        let begin = Position::of_base("run", 1, 0);
        put(&log, 1, &begin, "a").await;
        put(&log, 1, &begin, "a").await;
        let writes = vec![(b"b".to_vec(), None)];
        let (bytes, at) = Group { number: 1, writes }.encode(1, &begin);
        let error = log.put(&at, bytes).await.unwrap_err();
        assert!(matches!(error, LogError::Taken { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_missing_and_a_damaged_group_are_told() {
        let (dir, log) = log();
        let begin = Position::of_base("run", 1, 0);
        let first = put(&log, 1, &begin, "a").await;
        let second = put(&log, 1, &first, "b").await;
        let third = put(&log, 1, &second, "c").await;
        let path = dir
            .path()
            .join("job/run/log")
            .join(format!("{:016x}/{:020}", 1, 2));
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&path, bytes).unwrap();
        let error = log.chain(&begin, &third).await.unwrap_err();
        assert!(matches!(error, LogError::Damaged { .. }), "{error}");
        std::fs::remove_file(path).unwrap();
        let error = log.chain(&begin, &third).await.unwrap_err();
        assert!(matches!(error, LogError::Gap { number: 2, .. }), "{error}");
    }

    #[tokio::test]
    async fn the_life_that_is_written_now_has_its_name_beside_the_others() {
        let (dir, log) = log();
        let remote = Remote::open(&format!("file://{}", dir.path().display())).unwrap();
        assert_eq!(GroupLog::current(&remote, "job").await.unwrap(), None);
        log.become_current().await.unwrap();
        let next = GroupLog::new(&remote, "job", "next");
        next.become_current().await.unwrap();
        let current = GroupLog::current(&remote, "job").await.unwrap();
        assert_eq!(current.as_deref(), Some("next"));
    }
}
