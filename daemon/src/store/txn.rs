//! The writes of one group, seen by the jobs that follow in it before any of them is stored.
use super::error::StoreError;
use super::keys::Key;
use super::parts::{self, Get};
use robust_grouplog::Group;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// A growing batch over the stored state. Only the committer has one, so what a job reads cannot
/// change before what it writes is applied.
pub struct Txn<'a> {
    tree: &'a sled::Tree,
    path: &'a Path,
    /// Of jobs that succeeded.
    group: Writes,
    /// Of the job that runs.
    job: Writes,
    bytes: usize,
    /// Of the journal's next record.
    pub(super) next_journal: u64,
}

impl<'a> Txn<'a> {
    pub(super) fn new(tree: &'a sled::Tree, path: &'a Path, next_journal: u64) -> Self {
        Self {
            tree,
            path,
            group: Writes::new(),
            job: Writes::new(),
            bytes: 0,
            next_journal,
        }
    }

    /// Sets a value, splitting it when it is long.
    pub fn put(&mut self, key: &Key, value: &[u8]) -> Result<(), StoreError> {
        let key = key.encode();
        let old = self.get_raw(&key)?.map_or(0, |raw| parts::part_count(&raw));
        let entries = parts::entries(&key, value);
        let new = u32::try_from(entries.len() - 1).unwrap_or(u32::MAX);
        self.job
            .extend(entries.into_iter().map(|(k, v)| (k, Some(v))));
        for index in new..old {
            self.job.insert(super::keys::part(&key, index), None);
        }
        Ok(())
    }

    /// Removes a value and its parts.
    pub fn remove(&mut self, key: &Key) -> Result<(), StoreError> {
        let key = key.encode();
        if let Some(raw) = self.get_raw(&key)? {
            for index in 0..parts::part_count(&raw) {
                self.job.insert(super::keys::part(&key, index), None);
            }
            self.job.insert(key, None);
        }
        Ok(())
    }

    /// Sets or removes files.
    pub fn files(&mut self, files: Vec<(String, Option<Vec<u8>>)>) -> Result<(), StoreError> {
        for (name, contents) in files {
            let key = Key::File(name);
            match contents {
                Some(contents) => self.put(&key, &contents)?,
                None => self.remove(&key)?,
            }
        }
        Ok(())
    }

    /// Removes every raw entry of a range.
    pub fn remove_range(&mut self, range: Range<Vec<u8>>) -> Result<(), StoreError> {
        for key in self.tree.range(range.clone()).keys() {
            let key = key.map_err(|e| StoreError::sled("scan", self.path, e))?;
            self.job.insert(key.to_vec(), None);
        }
        let pending: Vec<_> = [&self.group, &self.job]
            .iter()
            .flat_map(|writes| writes.range(range.clone()).map(|(k, _)| k.clone()))
            .collect();
        self.job.extend(pending.into_iter().map(|k| (k, None)));
        Ok(())
    }

    /// The oldest of the newest `count` checkpoints that were on record before this group.
    pub fn oldest_checkpoint_of_last(&self, count: usize) -> Result<Option<u64>, StoreError> {
        let all = Key::Checkpoint(0).encode()..=Key::Checkpoint(u64::MAX).encode();
        let newest = self.tree.range(all).keys().rev().take(count.max(1));
        let Some(key) = newest.last() else {
            return Ok(None);
        };
        let key = key.map_err(|e| StoreError::sled("scan", self.path, e))?;
        Ok(match Key::decode(&key) {
            Some(Key::Checkpoint(step)) => Some(step),
            _ => None,
        })
    }

    /// Keys from `from` to `to`, both included, that have values, in order.
    pub fn keys(&self, from: &Key, to: &Key) -> Result<Vec<Vec<u8>>, StoreError> {
        let range = from.encode()..=to.encode();
        let mut keys = BTreeSet::new();
        for key in self.tree.range(range.clone()).keys() {
            let key = key.map_err(|e| StoreError::sled("scan", self.path, e))?;
            keys.insert(key.to_vec());
        }
        for writes in [&self.group, &self.job] {
            for (key, value) in writes.range(range.clone()) {
                match value {
                    Some(_) => keys.insert(key.clone()),
                    None => keys.remove(key),
                };
            }
        }
        Ok(keys.into_iter().collect())
    }

    /// The last of those, without looking at all of them.
    pub fn last_key(&self, from: &Key, to: &Key) -> Result<Option<Vec<u8>>, StoreError> {
        let range = from.encode()..=to.encode();
        let mut last = None;
        for writes in [&self.group, &self.job] {
            for (key, _) in writes.range(range.clone()).rev() {
                if last.as_ref() >= Some(key) {
                    break;
                }
                if self.get_raw(key)?.is_some() {
                    last = Some(key.clone());
                    break;
                }
            }
        }
        for key in self.tree.range(range).keys().rev() {
            let key = key.map_err(|e| StoreError::sled("scan", self.path, e))?;
            if last.as_deref() >= Some(&key) {
                break;
            }
            if self.get_raw(&key)?.is_some() {
                last = Some(key.to_vec());
                break;
            }
        }
        Ok(last)
    }

    /// Whether a key has a value.
    pub fn has(&self, key: &Key) -> Result<bool, StoreError> {
        Ok(self.get_raw(&key.encode())?.is_some())
    }

    /// The whole value of a key.
    pub fn value(&self, key: &Key) -> Result<Option<Vec<u8>>, StoreError> {
        self.get(&key.encode())
    }

    pub(super) fn keep_job(&mut self) {
        self.bytes += self.job.values().flatten().map(Vec::len).sum::<usize>();
        // Not `append`, which rebuilds the whole map.
        self.group.extend(std::mem::take(&mut self.job));
    }

    pub(super) fn drop_job(&mut self) {
        self.job.clear();
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The group, by its number; none when nothing is written.
    pub(super) fn into_group(self, number: u64) -> Option<Group> {
        let writes: Vec<_> = self.group.into_iter().collect();
        (!writes.is_empty()).then_some(Group { number, writes })
    }
}

impl Get for Txn<'_> {
    fn get_raw(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(write) = self.job.get(key).or_else(|| self.group.get(key)) {
            return Ok(write.clone());
        }
        let value = self
            .tree
            .get(key)
            .map_err(|e| StoreError::sled("read", self.path, e))?;
        Ok(value.map(|v| v.to_vec()))
    }

    fn path(&self) -> &Path {
        self.path
    }
}
