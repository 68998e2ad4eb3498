//! Reading what was applied.
use super::error::StoreError;
use super::keys::Key;
use super::parts::Get;
use std::path::Path;

/// How often a read that met a write in progress is repeated. A value in parts may be read while a
/// batch replaces it; the next reading sees the new one whole, unless another batch came.
const ATTEMPTS: usize = 5;

/// The applied state.
pub struct Reader<'a> {
    tree: &'a sled::Tree,
    path: &'a Path,
}

impl<'a> Reader<'a> {
    pub(super) fn new(tree: &'a sled::Tree, path: &'a Path) -> Self {
        Self { tree, path }
    }

    /// Repeats a reading that looks damaged, in case a batch was being applied.
    pub fn consistently<T>(
        &self,
        read: impl Fn(&Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut result = read(self);
        for _ in 1..ATTEMPTS {
            if !matches!(result, Err(StoreError::Corrupt { .. })) {
                break;
            }
            std::thread::yield_now();
            result = read(self);
        }
        result
    }

    /// Keys from `from` to `to`, both included, in order.
    pub fn keys(
        &self,
        from: &Key,
        to: &Key,
    ) -> impl DoubleEndedIterator<Item = Result<sled::IVec, StoreError>> {
        let keys = self.tree.range(from.encode()..=to.encode()).keys();
        keys.map(|key| key.map_err(|e| StoreError::sled("scan", self.path, e)))
    }

    /// Raw keys of a table, in order.
    pub fn table(&self, tag: u8) -> impl Iterator<Item = Result<sled::IVec, StoreError>> {
        let keys = self.tree.scan_prefix([tag]).keys();
        keys.map(|key| key.map_err(|e| StoreError::sled("scan", self.path, e)))
    }

    /// Raw keys after this one (from the first for none) with their values' lengths, `most` at most.
    pub fn entries_after(
        &self,
        after: Option<&[u8]>,
        most: u64,
    ) -> Result<Vec<(Vec<u8>, u64)>, StoreError> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = after.map_or(Unbounded, Excluded);
        let entries = self.tree.range::<&[u8], _>((from, Unbounded));
        let entry = |entry: sled::Result<(sled::IVec, sled::IVec)>| {
            let (key, value) = entry.map_err(|e| StoreError::sled("scan", self.path, e))?;
            Ok((key.to_vec(), value.len() as u64))
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        entries.take(most).map(entry).collect()
    }

    /// The number of the last event; 0 when there is none.
    pub fn last_event(&self) -> Result<u64, StoreError> {
        let last = self
            .keys(&Key::Event(0), &Key::Event(u64::MAX))
            .next_back()
            .transpose()?;
        Ok(match last.and_then(|key| Key::decode(&key)) {
            Some(Key::Event(seq)) => seq,
            _ => 0,
        })
    }
}

impl Get for Reader<'_> {
    fn get_raw(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
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
