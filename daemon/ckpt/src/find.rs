//! Looking for checkpoints.
use crate::{Checkpoint, files, manifest};
use robust_shared::ids::Step;
use std::io;
use std::path::{Path, PathBuf};

/// What looking for the newest complete checkpoint found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// The newest that verifies.
    pub checkpoint: Option<Checkpoint>,
    /// Newer ones that do not, each a sentence for the event log.
    pub rejected: Vec<String>,
}

/// The newest complete checkpoint under `dir`, with every byte verified. A folder without a
/// manifest is not a checkpoint and is passed over. Blocks for the reading.
pub fn newest_complete(dir: &Path) -> io::Result<Found> {
    newest_at_most(dir, Step(u64::MAX))
}

/// Like [`newest_complete`], among those of steps up to `limit`.
pub fn newest_at_most(dir: &Path, limit: Step) -> io::Result<Found> {
    let mut found = Found::default();
    let folders = folders(dir)?
        .into_iter()
        .filter(|(step, _)| *step <= limit.0);
    for (_, folder) in folders.rev() {
        match manifest::load(&folder) {
            Ok(None) => continue,
            Ok(Some(checkpoint)) => match verify(&checkpoint, &mut |_| ()) {
                Ok(()) => {
                    found.checkpoint = Some(checkpoint);
                    break;
                }
                Err(reason) => found.rejected.push(rejection(&folder, &reason)),
            },
            Err(reason) => found.rejected.push(rejection(&folder, &reason)),
        }
    }
    Ok(found)
}

/// Folders named like checkpoints, by step.
pub fn folders(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut folders = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if let Some(step) = name.strip_prefix("step-").and_then(|n| n.parse().ok()) {
            folders.push((step, path));
        }
    }
    folders.sort();
    Ok(folders)
}

/// A folder's name for a step.
pub fn folder_name(step: u64) -> String {
    format!("step-{step}")
}

/// Whether every byte of it is what its manifest says; else a sentence. `read` hears of every piece.
pub fn verify(checkpoint: &Checkpoint, read: &mut dyn FnMut(u64)) -> Result<(), String> {
    for shard in &checkpoint.shards {
        let (bytes, xxh3) = files::digest(&shard.path, read)
            .map_err(|e| format!("the shard of rank {} cannot be read: {e}", shard.rank))?;
        if (bytes, xxh3) != (shard.bytes, shard.xxh3) {
            return Err(format!(
                "the shard of rank {} does not match its digest",
                shard.rank
            ));
        }
    }
    Ok(())
}

fn rejection(folder: &Path, reason: &str) -> String {
    format!("checkpoint {} is not used: {reason}", folder.display())
}

/// All that a folder of checkpoints holds, oldest first; nothing is verified but the manifests.
pub fn list(dir: &Path) -> io::Result<Vec<Listed>> {
    let folders = folders(dir)?.into_iter();
    let read = |(step, dir): (u64, PathBuf)| {
        let manifest = manifest::load(&dir).transpose()?;
        let pinned = crate::pin::is_pinned(&dir);
        Some(Listed {
            step: Step(step),
            dir,
            manifest,
            pinned,
        })
    };
    Ok(folders.filter_map(read).collect())
}

/// A checkpoint as it lies there.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// The step, from the folder's name.
    pub step: Step,
    /// Its folder.
    pub dir: PathBuf,
    /// What its manifest says; or why that is of no use, a sentence.
    pub manifest: Result<Checkpoint, String>,
    /// An operator wants it to stay.
    pub pinned: bool,
}
