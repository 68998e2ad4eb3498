//! The pages of the run's history: few and small however long it is, because old ones are merged.
use super::codec::{decode, encode};
use super::error::StoreError;
use super::keys::Key;
use super::parts::Get;
use super::txn::Txn;
use super::{Durable, Store};
use robust_shared::history::{self, PAGES, Page};

/// Keys of pages of one level.
fn level(level: u8) -> (Key, Key) {
    (Key::History(level, 0), Key::History(level, u64::MAX))
}

impl Store {
    /// Adds the newest page, and merges the oldest where its level has too many.
    pub fn append_page(&self, page: Page) -> Durable<()> {
        self.submit_at_leisure(move |txn| append(txn, page))
    }

    /// Every page, oldest first.
    pub fn pages(&self, each: &mut dyn FnMut(&Page)) -> Result<(), StoreError> {
        let (from, to) = (Key::History(0, 0), Key::History(u8::MAX, u64::MAX));
        let mut keys = self.read(|reader| {
            let keys = reader.keys(&from, &to);
            keys.collect::<Result<Vec<_>, _>>()
        })?;
        // By their begin. Old pages are of high levels.
        keys.sort_by(|a, b| a.get(2..).cmp(&b.get(2..)));
        for key in keys {
            // One at a time: writers must not wait, and what is read need not be held.
            let page = self.read(|reader| match reader.get(&key)? {
                Some(bytes) => Ok(Some(decode::<Page>(reader.path(), &key, &bytes)?)),
                // Merged meanwhile, which happens once in many seconds: its time is left empty.
                None => Ok(None),
            })?;
            if let Some(page) = page {
                each(&page);
            }
        }
        Ok(())
    }
}

fn append(txn: &mut Txn<'_>, page: Page) -> Result<(), StoreError> {
    let mut next = Some(page);
    while let Some(page) = next.take() {
        let key = Key::History(page.level, page.from.0);
        txn.put(&key, &encode("history", &page)?)?;
        let (from, to) = level(page.level);
        let keys = txn.keys(&from, &to)?;
        let [first, second, ..] = &keys[..] else {
            continue;
        };
        if keys.len() <= PAGES {
            continue;
        }
        next = Some(history::merge(&read(txn, first)?, &read(txn, second)?));
        for key in [first, second].into_iter().filter_map(|k| Key::decode(k)) {
            txn.remove(&key)?;
        }
    }
    Ok(())
}

fn read(txn: &Txn<'_>, key: &[u8]) -> Result<Page, StoreError> {
    match txn.get(key)? {
        Some(bytes) => decode(txn.path(), key, &bytes),
        None => Ok(Page::default()),
    }
}
