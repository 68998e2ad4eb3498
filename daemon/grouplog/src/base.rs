//! Bases: dumps of the whole store, with which nobody has to begin at the first group.
use crate::group::{part, take};
use crate::keys::{self, MANIFEST};
use crate::log::get;
use crate::{Digest, GroupLog, LogError, Position};
use bytes::{BufMut, Bytes, BytesMut};
use futures::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{ObjectStoreExt, PutPayload};
use serde::{Deserialize, Serialize};

/// A key of the store with its value.
pub type BaseEntry = (Vec<u8>, Vec<u8>);

/// Bytes of a part after which the next one begins.
const PART_BYTES: usize = 8 << 20;
/// What a manifest says that this build reads.
const FORMAT: u32 = 1;
/// Bases that are kept: if the last one is damaged, the one before it is as good, and takes longer.
const KEPT: usize = 2;

/// What a base consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    format: u32,
    /// Up to where it has everything; groups after that are applied over it.
    pub at: Position,
    /// Bytes of all of its parts.
    pub bytes: u64,
    parts: Vec<Digest>,
}

/// A base under way.
struct Writing<'a> {
    log: &'a GroupLog,
    folder: Key,
    part: BytesMut,
    parts: Vec<Digest>,
    bytes: u64,
}

impl Writing<'_> {
    async fn put_part(&mut self) -> Result<(), LogError> {
        let bytes = self.part.split().freeze();
        self.parts.push(Digest(*blake3::hash(&bytes).as_bytes()));
        self.bytes += bytes.len() as u64;
        let key = part_key(&self.folder, self.parts.len() - 1);
        let put = self.log.store.put(&key, PutPayload::from(bytes));
        put.await.map(drop).map_err(LogError::store("put", &key))
    }
}

fn part_key(folder: &Key, index: usize) -> Key {
    folder.clone().join(format!("{index:06}"))
}

impl GroupLog {
    /// Puts a base. `next` gives the store's entries, some at a time, and nothing when there are no more; all that was
    /// written up to `at` has to be in them. `settled` is waited for then: the base counts only once all that may be in it
    /// does. The log needs nothing older than the last two bases from then on: that is removed.
    ///
    /// # Errors
    /// When the store cannot be reached, or somebody goes on in a later term; and whatever `next` and `settled` failed with.
    pub async fn put_base<E: From<LogError>>(
        &self,
        at: Position,
        mut next: impl FnMut() -> Result<Vec<BaseEntry>, E>,
        settled: impl Future<Output = Result<(), E>>,
    ) -> Result<Base, E> {
        self.is_newest(at.epoch).await?;
        let mut writing = Writing {
            log: self,
            folder: keys::base(&self.root, &at),
            part: BytesMut::new(),
            parts: Vec::new(),
            bytes: 0,
        };
        loop {
            let entries = next()?;
            if entries.is_empty() {
                break;
            }
            for (key, value) in entries {
                for bytes in [key, value] {
                    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                    writing.part.put_u32_le(length);
                    writing.part.put_slice(&bytes);
                }
            }
            if writing.part.len() >= PART_BYTES {
                writing.put_part().await?;
            }
        }
        writing.put_part().await?;
        settled.await?;
        let (folder, bytes, parts) = (writing.folder, writing.bytes, writing.parts);
        let base = Base {
            format: FORMAT,
            at,
            bytes,
            parts,
        };
        let key = folder.join(MANIFEST);
        let text = serde_json::to_vec(&base).unwrap_or_default();
        let put = self.store.put(&key, PutPayload::from(text)).await;
        put.map_err(LogError::store("put", &key))?;
        // The base is there; what is too much is removed with the next one.
        if let Err(error) = self.tidy(at.epoch).await {
            tracing::warn!("what the job's log needs no more is not removed: {error}");
        }
        Ok(base)
    }

    /// The complete bases, oldest first.
    ///
    /// # Errors
    /// When the store cannot be reached.
    pub async fn bases(&self) -> Result<Vec<Base>, LogError> {
        let mut bases: Vec<Base> = Vec::new();
        for (folder, names) in self.base_folders().await? {
            if !names.iter().any(|name| name == MANIFEST) {
                continue;
            }
            let key = folder.join(MANIFEST);
            let Some(bytes) = get(&self.store, &key).await? else {
                continue;
            };
            match serde_json::from_slice::<Base>(&bytes) {
                Ok(base) if base.format == FORMAT => bases.push(base),
                Ok(_) => tracing::warn!("{key} of the log is of a later build, and is passed over"),
                Err(error) => {
                    tracing::warn!("{key} of the log is damaged, and is passed over: {error}")
                }
            }
        }
        bases.sort_by_key(|base| (base.at.epoch, base.at.number));
        Ok(bases)
    }

    /// Reads a base; each part's entries are handed over as it comes.
    ///
    /// # Errors
    /// When the store cannot be reached, or a part is missing or damaged; and whatever `take` failed with.
    pub async fn read_base<E: From<LogError>>(
        &self,
        base: &Base,
        mut taken: impl FnMut(Vec<BaseEntry>) -> Result<(), E>,
    ) -> Result<(), E> {
        let folder = keys::base(&self.root, &base.at);
        for (index, digest) in base.parts.iter().enumerate() {
            let key = part_key(&folder, index);
            let damaged = |why: &str| LogError::damaged(&key, why);
            let bytes = get(&self.store, &key).await?;
            let bytes = bytes.ok_or_else(|| damaged("it is not there"))?;
            if *blake3::hash(&bytes).as_bytes() != digest.0 {
                return Err(damaged("it is not what its manifest says").into());
            }
            taken(entries(&bytes).map_err(damaged)?)?;
        }
        Ok(())
    }

    /// Removes what no kept base needs, and nothing of a later term.
    async fn tidy(&self, epoch: u64) -> Result<(), LogError> {
        let mut bases = self.bases().await?;
        bases.retain(|base| base.at.epoch <= epoch);
        bases.sort_by_key(|base| (base.at.epoch, base.at.number));
        let Some(oldest) = bases.iter().rev().nth(KEPT - 1) else {
            return Ok(());
        };
        for (folder, names) in self.base_folders().await? {
            let is_kept = bases.iter().rev().take(KEPT);
            let is_kept = is_kept.map(|base| keys::base(&self.root, &base.at));
            // One under way, of this controller or another, is of a later term or later in this one.
            let place = keys::place_of(&folder);
            let is_old = place.is_some_and(|place| place < (oldest.at.epoch, oldest.at.number));
            if is_kept.clone().any(|kept| kept == folder) || !is_old {
                continue;
            }
            // The manifest first: half a base is none.
            let mut names = names;
            names.sort_by_key(|name| name != MANIFEST);
            let keys = names.into_iter().map(|name| folder.clone().join(name));
            self.remove(keys.collect()).await?;
        }
        self.remove_groups(oldest.at.number, epoch).await
    }

    /// Every folder of a base, with the names in it.
    async fn base_folders(&self) -> Result<Vec<(Key, Vec<String>)>, LogError> {
        let folder = keys::bases(&self.root);
        let listing = self.store.list(Some(&folder));
        let listed: Vec<Key> = listing
            .map_ok(|object| object.location)
            .try_collect()
            .await
            .map_err(LogError::store("list", &folder))?;
        let mut folders = std::collections::BTreeMap::<Key, Vec<String>>::new();
        for key in &listed {
            if let Some((base, name)) = keys::base_of(key) {
                folders.entry(base).or_default().push(name.to_owned());
            }
        }
        Ok(folders.into_iter().collect())
    }
}

fn entries(bytes: &Bytes) -> Result<Vec<BaseEntry>, &'static str> {
    let mut rest: &[u8] = bytes;
    let mut entries = Vec::new();
    while !rest.is_empty() {
        entries.push((part(&mut rest)?, part(&mut rest)?));
    }
    let _: [u8; 0] = take(&mut rest)?;
    Ok(entries)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Group;
    use robust_remote::Remote;

    fn log() -> (tempfile::TempDir, GroupLog) {
        let dir = tempfile::tempdir().unwrap();
        let remote = Remote::open(&format!("file://{}", dir.path().display())).unwrap();
        (dir, GroupLog::new(&remote, "job", "run"))
    }

    async fn put(log: &GroupLog, at: Position, all: &[BaseEntry]) -> Base {
        let mut chunks = all.chunks(3).map(<[BaseEntry]>::to_vec);
        let next = || Ok::<_, LogError>(chunks.next().unwrap_or_default());
        log.put_base(at, next, async { Ok(()) }).await.unwrap()
    }

    async fn read(log: &GroupLog, base: &Base) -> Result<Vec<BaseEntry>, LogError> {
        let mut all = Vec::new();
        let reading = log.read_base::<LogError>(base, |entries| {
            all.extend(entries);
            Ok(())
        });
        reading.await.map(|()| all)
    }

    #[tokio::test]
    async fn a_base_reads_back_whole_and_in_parts() {
        let (_dir, log) = log();
        let large = |n: u8| (vec![n], vec![n; 3 << 20]);
        let all: Vec<_> = (0..10).map(large).collect();
        let at = Position::of_base("run", 1, 7);
        let base = put(&log, at, &all).await;
        assert!(base.parts.len() > 2, "{base:?}");
        assert_eq!(log.bases().await.unwrap(), std::slice::from_ref(&base));
        assert_eq!(read(&log, &base).await.unwrap(), all);
        let empty = put(&log, Position::of_base("run", 2, 7), &[]).await;
        assert!(read(&log, &empty).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_damaged_part_is_told_and_half_a_base_is_none() {
        let (dir, log) = log();
        let all = [(b"k".to_vec(), b"v".to_vec())];
        let base = put(&log, Position::of_base("run", 1, 7), &all).await;
        let folder = dir.path().join(keys::base(&log.root, &base.at).as_ref());
        std::fs::write(folder.join("000000"), b"other").unwrap();
        let error = read(&log, &base).await.unwrap_err();
        assert!(matches!(error, LogError::Damaged { .. }), "{error}");
        std::fs::remove_file(folder.join(MANIFEST)).unwrap();
        assert!(log.bases().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn nobody_makes_a_base_or_removes_anything_once_somebody_goes_on_in_a_later_term() {
        let (_dir, log) = log();
        let begin = Position::of_base("run", 3, 5);
        put(&log, begin, &[]).await;
        let number = begin.number + 1;
        let (bytes, next) = Group {
            number,
            writes: Vec::new(),
        }
        .encode(4, &begin);
        log.put(&next, bytes).await.unwrap();
        let late = Position::of_base("run", 3, 50);
        let none = || Ok::<_, LogError>(Vec::new());
        let error = log
            .put_base(late, none, async { Ok(()) })
            .await
            .unwrap_err();
        assert!(matches!(error, LogError::Taken { .. }), "{error}");
        assert_eq!(log.groups().await.unwrap(), [(4, 6)]);
        assert_eq!(log.bases().await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_base_that_is_not_settled_is_none() {
        let (_dir, log) = log();
        let none = || Ok::<_, LogError>(Vec::new());
        let never = async { Err(LogError::Taken { key: String::new() }) };
        let at = Position::of_base("run", 1, 7);
        log.put_base(at, none, never).await.unwrap_err();
        assert!(log.bases().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn the_last_two_bases_are_kept_and_the_groups_since_the_older_one() {
        let (dir, log) = log();
        let mut at = Position::of_base("run", 1, 0);
        for round in 0..5 {
            put(&log, at, &[]).await;
            for _ in 0..3 {
                let number = at.number + 1;
                let (bytes, next) = Group {
                    number,
                    writes: Vec::new(),
                }
                .encode(1, &at);
                log.put(&next, bytes).await.unwrap();
                at = next;
            }
            assert_eq!(log.bases().await.unwrap().len(), 2.min(round + 1));
        }
        let bases = log.bases().await.unwrap();
        assert_eq!(
            bases.iter().map(|b| b.at.number).collect::<Vec<_>>(),
            [9, 12]
        );
        let groups: Vec<_> = log.groups().await.unwrap().iter().map(|g| g.1).collect();
        assert_eq!(groups, (10..=15).collect::<Vec<_>>());
        let chain = log.chain(&bases[0].at, &at).await.unwrap().unwrap();
        assert_eq!(chain.len(), 6);
        let folders = std::fs::read_dir(dir.path().join("job/run/base")).unwrap();
        let with_files = folders.filter(|f| {
            let path = f.as_ref().unwrap().path();
            path.read_dir().unwrap().next().is_some()
        });
        assert_eq!(with_files.count(), 2);
    }
}
