//! The names of the log's objects.
use crate::Position;
use object_store::path::Path as Key;

/// The last object of a base.
pub(crate) const MANIFEST: &str = "manifest.json";

pub(crate) fn current(job: &Key) -> Key {
    job.clone().join("current")
}

/// Files of the job, whatever its life: no life is named so, for those have names of random digits.
pub(crate) fn files(job: &Key) -> Key {
    job.clone().join("files")
}

pub(crate) fn proof(run: &Key, name: &str) -> Key {
    run.clone().join("proof").join(name)
}

pub(crate) fn groups(run: &Key) -> Key {
    run.clone().join("log")
}

pub(crate) fn group(run: &Key, epoch: u64, number: u64) -> Key {
    let folder = groups(run).join(format!("{epoch:016x}"));
    folder.join(format!("{number:020}"))
}

/// The epoch and the number of a group by its name.
pub(crate) fn group_of(key: &Key) -> Option<(u64, u64)> {
    let mut parts = key.as_ref().rsplit('/');
    let (number, epoch) = (parts.next()?, parts.next()?);
    // A put that was broken off leaves a file beside it that ends in `#1`.
    let number = number.parse().ok()?;
    Some((u64::from_str_radix(epoch, 16).ok()?, number))
}

pub(crate) fn bases(run: &Key) -> Key {
    run.clone().join("base")
}

pub(crate) fn base(run: &Key, at: &Position) -> Key {
    let Position { epoch, number, .. } = at;
    bases(run).join(format!("{number:020}-{epoch:016x}"))
}

/// The epoch and the number of a base by its folder.
pub(crate) fn place_of(folder: &Key) -> Option<(u64, u64)> {
    let (number, epoch) = folder.as_ref().rsplit('/').next()?.split_once('-')?;
    Some((u64::from_str_radix(epoch, 16).ok()?, number.parse().ok()?))
}

/// The base that an object is part of, and its name in it.
pub(crate) fn base_of(key: &Key) -> Option<(Key, &str)> {
    let (folder, name) = key.as_ref().rsplit_once('/')?;
    Some((Key::from(folder), name))
}
