//! Checkpoints that turned out damaged: renamed, so that nothing finds them any more, and kept for a
//! while with what was wrong, so that somebody can look.
//!
//! ```text
//! STATE/ckpt/step-7.corrupt-1764000000000/evidence.txt   why, and what lay there
//!                                         manifest.json, rank-*.safetensors as they were
//! ```
use crate::disk::Disk;
use crate::{CkptError, files, folder, folder_name, manifest};
use robust_shared::ids::Step;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// So many stay; they take as much space as checkpoints.
const KEPT: usize = 2;
const EVIDENCE: &str = "evidence.txt";
const MARK: &str = ".corrupt-";

/// A checkpoint that was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// Of this step.
    pub step: Step,
    /// Where it is now.
    pub dir: PathBuf,
    /// When, in Unix milliseconds.
    pub at_ms: u64,
    /// What was wrong, where that could be written.
    pub reason: String,
}

/// Sets the checkpoint of a step in `dir` aside, if it is there and this build may judge it: one that a
/// newer build wrote stays where it is. The oldest of those set aside before goes.
pub fn set_aside(
    disk: &dyn Disk,
    dir: &Path,
    step: Step,
    reason: &str,
) -> Result<Option<PathBuf>, CkptError> {
    let from = dir.join(folder_name(step.0));
    // Without a manifest it is no checkpoint: one being written, or removed just now.
    if !from.join(manifest::FILE).exists() || manifest::is_newer(&from) {
        return Ok(None);
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let at = since.map_or(0, |since| since.as_millis());
    let to = dir.join(format!("{}{MARK}{at}", folder_name(step.0)));
    let evidence = format!("{reason}\n{}", listing(&from));
    disk.rename(&from, &to)
        .map_err(CkptError::io("set aside", &from))?;
    files::sync_dir(disk, dir)?;
    // On a full disk there is no evidence but the files.
    let _ = files::replace(disk, &to.join(EVIDENCE), evidence.as_bytes());
    let all = aside(dir).map_err(CkptError::io("list", dir))?;
    for old in all.iter().rev().skip(KEPT) {
        folder::remove(disk, &old.dir)?;
    }
    Ok(Some(to))
}

/// Those that are set aside, oldest first.
pub fn aside(dir: &Path) -> io::Result<Vec<Aside>> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let dir = entry?.path();
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let parts = name.strip_prefix("step-").and_then(|n| n.split_once(MARK));
        let Some((Ok(step), Ok(at_ms))) = parts.map(|(s, at)| (s.parse(), at.parse())) else {
            continue;
        };
        let text = std::fs::read_to_string(dir.join(EVIDENCE)).unwrap_or_default();
        found.push(Aside {
            step: Step(step),
            at_ms,
            reason: text.lines().next().unwrap_or_default().to_owned(),
            dir,
        });
    }
    found.sort_by_key(|a| (a.at_ms, a.step));
    Ok(found)
}

fn listing(dir: &Path) -> String {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let line = |e: std::fs::DirEntry| {
        let bytes = e.metadata().map_or(0, |m| m.len());
        format!("{} {bytes} bytes\n", e.file_name().to_string_lossy())
    };
    entries.map(line).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::disk::RealDisk;
    use crate::{Checkpoint, list};
    use robust_shared::ids::Generation;

    fn checkpoint(dir: &Path, step: u64) -> PathBuf {
        let folder = dir.join(folder_name(step));
        std::fs::create_dir(&folder).unwrap();
        let checkpoint = Checkpoint {
            step: Step(step),
            generation: Generation(1),
            dir: folder.clone(),
            shards: Vec::new(),
            consumed: Vec::new(),
            reward: None,
            at: None,
            adam_step: None,
            tensors: Vec::new(),
        };
        manifest::store(&RealDisk, &checkpoint).unwrap();
        folder
    }

    #[test]
    fn what_is_set_aside_is_found_by_nobody_and_says_what_was_wrong_with_it() {
        let dir = tempfile::tempdir().unwrap();
        checkpoint(dir.path(), 7);
        let reason = "the shard of rank 0 does not match its digest";
        let to = set_aside(&RealDisk, dir.path(), Step(7), reason)
            .unwrap()
            .unwrap();
        assert_eq!(list(dir.path()).unwrap(), []);
        let found = aside(dir.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].step, &found[0].dir, &*found[0].reason),
            (Step(7), &to, reason)
        );
        let evidence = std::fs::read_to_string(to.join(EVIDENCE)).unwrap();
        assert!(evidence.contains("manifest.json "), "{evidence}");
    }

    #[test]
    fn the_newest_two_stay() {
        let dir = tempfile::tempdir().unwrap();
        for step in 1..=4 {
            checkpoint(dir.path(), step);
            set_aside(&RealDisk, dir.path(), Step(step), "bad").unwrap();
        }
        let steps: Vec<_> = aside(dir.path()).unwrap().iter().map(|a| a.step).collect();
        assert_eq!(steps.len(), KEPT);
        assert!(steps.contains(&Step(4)), "{steps:?}");
    }

    #[test]
    fn what_is_no_checkpoint_or_a_newer_builds_stays_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("step-1")).unwrap();
        let newer = checkpoint(dir.path(), 2).join(manifest::FILE);
        let text = std::fs::read_to_string(&newer).unwrap();
        let format = text.lines().find(|l| l.contains("\"format\"")).unwrap();
        std::fs::write(&newer, text.replace(format, "\"format\": 99,")).unwrap();
        for step in 1..=3 {
            assert_eq!(
                set_aside(&RealDisk, dir.path(), Step(step), "bad").unwrap(),
                None
            );
        }
        assert!(
            list(dir.path()).unwrap()[0]
                .manifest
                .as_ref()
                .unwrap_err()
                .contains("newer")
        );
    }
}
