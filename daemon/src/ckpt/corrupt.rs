//! Damage on purpose, for drills.
use robust_ckpt::{folders, manifest};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Flips a byte in the middle of a shard of the newest checkpoint under `dir`; where, or nothing when
/// there is none. A shard that an older checkpoint shares (it did not change) is damaged there too.
pub fn corrupt_newest(dir: &Path) -> io::Result<Option<(PathBuf, u64)>> {
    let newest = folders(dir)?.into_iter().rev();
    let mut whole = newest.filter_map(|(_, folder)| manifest::load(&folder).ok().flatten());
    let shard = whole.find_map(|checkpoint| checkpoint.shards.into_iter().next());
    let Some(shard) = shard else { return Ok(None) };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&shard.path)?;
    let at = file.metadata()?.len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)?;
    file.write_all_at(&[!byte[0]], at)?;
    file.sync_data()?;
    Ok(Some((shard.path, at)))
}
