//! Room for the database, looked at before every group: a write that fails in the middle closes sled,
//! and what is stored cannot be read until it is opened again. So writes stop while there is still
//! room for one more.
use super::condition::{Condition, Conditions};
use super::database::Commit;
use super::error::StoreError;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// What must be free for a group to be taken: several groups' bytes, and what sled writes when it is
/// opened.
const RESERVE: u64 = 64 << 20;
/// On a small file system it is this part of it.
const PART: u64 = 16;

/// Bytes that stay free on a file system of that size.
pub fn reserve(total: u64) -> u64 {
    RESERVE.min(total / PART)
}

/// Whether a group may be written now. A disk that was full must have a quarter more than the reserve.
pub(super) fn look(
    commit: &dyn Commit,
    path: &Path,
    conditions: &Conditions,
    was_full: bool,
) -> Result<(), StoreError> {
    // A file system that does not say: the write itself will.
    let Ok(space) = commit.space() else {
        return Ok(());
    };
    let wanted = match (was_full, reserve(space.total)) {
        (true, reserve) => reserve + reserve / 4,
        (false, reserve) => reserve,
    };
    if space.free >= wanted {
        return Ok(());
    }
    if !was_full {
        conditions.set(Condition::Full {
            free: space.free,
            wanted: wanted + wanted / 4,
        });
    }
    let words = format!("{} MiB left", space.free >> 20);
    Err(StoreError::Full {
        path: path.to_owned(),
        source: Arc::new(io::Error::new(io::ErrorKind::StorageFull, words)),
    })
}
