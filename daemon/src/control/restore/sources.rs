//! Where states of the gang are kept.
use crate::snapshots::SnapshotShards;
use futures::FutureExt;
use futures::future::BoxFuture;
use robust_ckpt::disk::RealDisk;
use robust_ckpt::{Checkpoint, list, set_aside, verify};
use robust_shared::dispatch::calls::Shard;
use robust_shared::ids::Step;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::control::wire::shard_from_wire;

/// A place where states of the gang may be. What goes wrong is told in a sentence, and the next place
/// is asked.
pub trait Source: Send + Sync {
    /// Its name in sentences, such as `own disk`.
    fn name(&self) -> &'static str;

    /// Steps up to `limit` of which it says that it has the whole state. Cheap: nothing is read whole.
    fn steps(&self, limit: Step) -> BoxFuture<'_, Result<Vec<Step>, String>>;

    /// The shards of one of those steps, in rank order: files that every rank can be sent to, verified, and brought here
    /// where they were elsewhere; without a path those that the ranks' nodes find among themselves.
    fn shards(&self, step: Step) -> BoxFuture<'_, Result<Vec<Shard>, String>>;
}

/// The snapshots in this machine's memory, those that nodes sent here included.
pub struct Memory {
    snapshots: BTreeMap<Step, SnapshotShards>,
}

impl Memory {
    /// Of the snapshots that are known.
    pub fn new(snapshots: BTreeMap<Step, SnapshotShards>) -> Self {
        Self { snapshots }
    }

    fn find(&self, step: Step) -> Result<Vec<Shard>, String> {
        let known = self.snapshots.get(&step);
        let shards = &known.ok_or("it is not known any more")?.shards;
        match shards.iter().find(|s| !Path::new(&s.path).is_file()) {
            // The ranks verify what they read: it is in memory, and may be written at any time.
            None => Ok(shards.iter().map(shard_from_wire).collect()),
            Some(gone) => Err(format!("{} is not there any more", gone.path)),
        }
    }
}

impl Source for Memory {
    fn name(&self) -> &'static str {
        "own memory"
    }

    fn steps(&self, limit: Step) -> BoxFuture<'_, Result<Vec<Step>, String>> {
        let steps = self.snapshots.range(..=limit).map(|(step, _)| *step);
        std::future::ready(Ok(steps.collect())).boxed()
    }

    fn shards(&self, step: Step) -> BoxFuture<'_, Result<Vec<Shard>, String>> {
        std::future::ready(self.find(step)).boxed()
    }
}

/// The checkpoints on this machine's disk.
pub struct Disk {
    dir: PathBuf,
}

impl Disk {
    /// In this folder.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }
}

impl Source for Disk {
    fn name(&self) -> &'static str {
        "own disk"
    }

    fn steps(&self, limit: Step) -> BoxFuture<'_, Result<Vec<Step>, String>> {
        let dir = self.dir.clone();
        beside(move || {
            let listed =
                list(&dir).map_err(|e| format!("{} cannot be read: {e}", dir.display()))?;
            let steps = listed.iter().map(|l| l.step);
            Ok(steps.filter(|step| *step <= limit).collect())
        })
    }

    fn shards(&self, step: Step) -> BoxFuture<'_, Result<Vec<Shard>, String>> {
        let dir = self.dir.clone();
        beside(move || verified(&dir, step))
    }
}

/// The files of a checkpoint, every byte of which was verified.
fn verified(dir: &Path, step: Step) -> Result<Vec<Shard>, String> {
    let listed = list(dir).map_err(|e| format!("{} cannot be read: {e}", dir.display()))?;
    let found = listed.into_iter().find(|l| l.step == step);
    let found = found.ok_or("its checkpoint is not there any more")?;
    let sound = found.manifest.and_then(|checkpoint| {
        verify(&checkpoint, &mut |_| ())?;
        Ok(shards_of(&checkpoint))
    });
    sound.map_err(|reason| out_of_the_way(dir, step, reason))
}

/// The shards of a checkpoint on disk.
pub(super) fn shards_of(checkpoint: &Checkpoint) -> Vec<Shard> {
    let shard = |s: &robust_ckpt::Shard| Shard {
        step: checkpoint.step,
        path: s.path.display().to_string(),
        bytes: s.bytes,
        xxh3: Some(s.xxh3),
        generation: checkpoint.generation,
        adam_step: checkpoint.adam_step,
    };
    checkpoint.shards.iter().map(shard).collect()
}

/// A damaged checkpoint is set aside, so that nobody restores from it and its step can be written again.
fn out_of_the_way(dir: &Path, step: Step, reason: String) -> String {
    match set_aside(&RealDisk, dir, step, &reason) {
        Ok(Some(to)) => format!("{reason}; it is set aside as {}", to.display()),
        Ok(None) => reason,
        Err(error) => format!("{reason}; {error}"),
    }
}

fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> BoxFuture<'static, Result<T, String>> {
    let working = tokio::task::spawn_blocking(work);
    async { working.await.map_err(|e| e.to_string())? }.boxed()
}
