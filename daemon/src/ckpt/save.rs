//! One checkpoint's files: shards, then the manifest that makes them one.
//!
//! ```text
//!  the very same step is there and verifies ──────────────────────────────► nothing is written
//!  per shard: the newest other checkpoint has the same bytes ─► hard link ┐
//!             else ─► copied from the snapshot                            ┴─► folder synced ─► manifest
//! ```
//! A shard is compared before it is read as a whole: a few pages tell a shard that was trained from one
//! that was not (frozen, or a learning rate of 0), so that the usual case costs nothing. A link is made
//! only to bytes that were read and match their digest: damage is not handed on.
use super::{Config, Request, write};
use robust_ckpt::disk::Disk;
use robust_ckpt::slot::{Image, Taken};
use robust_ckpt::{
    Checkpoint, CkptError, Shard, files, folder, folder_name, list, manifest, verify,
};
use robust_shared::dispatch::calls;
use robust_shared::time::Time;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Pages that are compared first.
const SAMPLES: u64 = 64;
const SAMPLE_BYTES: usize = 4096;

/// How a checkpoint came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Saved {
    /// The page cache was bypassed for all that was written.
    pub direct: bool,
    /// Bytes that an earlier checkpoint had already.
    pub unchanged: u64,
}

/// Writes the step's checkpoint; nothing is left of one that fails.
pub(super) fn save(config: &Config, request: &Request) -> Result<Saved, CkptError> {
    let disk = &*config.disk;
    let dir = config.dir.join(folder_name(request.step.0));
    if is_there(request, &dir) {
        return Ok(Saved {
            direct: true,
            unchanged: request.shards.iter().map(|s| s.bytes).sum(),
        });
    }
    let earlier = newest_other(config, request);
    // The step may have been committed before, by a gang that was rolled back. What an operator
    // pinned was that one, which is history that did not happen.
    folder::remove(disk, &dir)?;
    disk.make_dir(&dir).map_err(CkptError::io("make", &dir))?;
    fill(config, request, &dir, earlier.as_ref()).inspect_err(|_| {
        // Gives its space back; the error at hand is the one to tell.
        let _ = folder::remove(disk, &dir);
    })
}

fn fill(
    config: &Config,
    request: &Request,
    dir: &Path,
    earlier: Option<&Checkpoint>,
) -> Result<Saved, CkptError> {
    let disk = &*config.disk;
    let mut saved = Saved {
        direct: true,
        unchanged: 0,
    };
    let mut shards = Vec::new();
    for (rank, shard) in (0..).zip(&request.shards) {
        let before = earlier.and_then(|c| c.shards.iter().find(|s| s.rank == rank));
        shards.push(save_shard(disk, dir, (rank, shard), before, &mut saved)?);
    }
    files::sync_dir(disk, dir)?;
    let checkpoint = Checkpoint {
        step: request.step,
        generation: request.generation,
        dir: dir.to_owned(),
        shards,
        consumed: request.consumed.clone(),
        reward: request.reward,
        at: Some(now()),
        adam_step: request.shards.first().and_then(|s| s.adam_step),
        tensors: request.tensors.clone(),
    };
    manifest::store(disk, &checkpoint)?;
    files::sync_dir(disk, &config.dir)?;
    Ok(saved)
}

fn save_shard(
    disk: &dyn Disk,
    dir: &Path,
    (rank, shard): (u32, &calls::Shard),
    before: Option<&Shard>,
    saved: &mut Saved,
) -> Result<Shard, CkptError> {
    let taken = Taken {
        step: shard.step,
        generation: shard.generation,
        bytes: shard.bytes,
    };
    let path = dir.join(manifest::shard_file(rank));
    let image = Image::open(Path::new(&shard.path), taken)?;
    let same = match before {
        Some(before) if is_same(&image, shard.xxh3, before)? => Some(before),
        _ => None,
    };
    // A file system without links, or a file with too many, has it written instead.
    let xxh3 = match same.filter(|before| disk.link(&before.path, &path).is_ok()) {
        Some(before) => {
            saved.unchanged += shard.bytes;
            before.xxh3
        }
        None => {
            let copied = write::copy_shard(disk, &image, shard.xxh3, &path)?;
            saved.direct &= copied.direct;
            copied.xxh3
        }
    };
    Ok(Shard {
        rank,
        path,
        bytes: shard.bytes,
        xxh3,
    })
}

/// Whether the very act that this request is about is on disk, whole: the same gang committed the same
/// step with the same trajectories.
fn is_there(request: &Request, dir: &Path) -> bool {
    let Ok(Some(there)) = manifest::load(dir) else {
        return false;
    };
    let is = |(shard, asked): (&Shard, &calls::Shard)| {
        shard.bytes == asked.bytes && asked.xxh3.is_none_or(|xxh3| xxh3 == shard.xxh3)
    };
    (there.step, there.generation) == (request.step, request.generation)
        && there.consumed == request.consumed
        && there.shards.len() == request.shards.len()
        && there.shards.iter().zip(&request.shards).all(is)
        && verify(&there, &mut |_| ()).is_ok()
}

/// The checkpoint whose files are most likely to be the same.
fn newest_other(config: &Config, request: &Request) -> Option<Checkpoint> {
    let listed = list(&config.dir).unwrap_or_default();
    let others = listed.into_iter().filter(|l| l.step != request.step);
    others.filter_map(|l| l.manifest.ok()).next_back()
}

/// Whether an earlier file has the image's bytes, and still has them.
fn is_same(image: &Image, known: Option<u64>, before: &Shard) -> Result<bool, CkptError> {
    if before.bytes != image.bytes() || known.is_some_and(|xxh3| xxh3 != before.xxh3) {
        return Ok(false);
    }
    let is_candidate = match known {
        Some(_) => true,
        None => looks_same(image, &before.path) && image.digest()? == before.xxh3,
    };
    let as_recorded = || {
        let found = files::digest(&before.path, &mut |_| ());
        found.is_ok_and(|found| found == (before.bytes, before.xxh3))
    };
    Ok(is_candidate && as_recorded())
}

/// Whether pages from all over it are equal. A file that cannot be read is not.
fn looks_same(image: &Image, path: &Path) -> bool {
    let Ok(file) = File::open(path) else {
        return false;
    };
    let (mut ours, mut theirs) = ([0; SAMPLE_BYTES], [0; SAMPLE_BYTES]);
    let last = image.bytes().saturating_sub(SAMPLE_BYTES as u64);
    (0..SAMPLES).all(|n| {
        let at = last / (SAMPLES - 1) * n;
        let read = image.read_at(&mut ours, at).unwrap_or(0);
        file.read_exact_at(&mut theirs[..read], at).is_ok() && ours[..read] == theirs[..read]
    })
}

/// By the daemon's clock.
pub(super) fn now() -> Time {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Time(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
