//! Where trainer snapshots live: memory that outlives the trainer's processes.
use super::{StateDirError, remove_folder};
use robust_tree::{ENGINE_VARIABLE, leftovers, sweep};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long killed processes of a user's program may take to go.
const GONE: Duration = Duration::from_secs(5);
/// Pause between looks at whether they are.
const LOOK: Duration = Duration::from_millis(20);

/// The folder in shared memory that belongs to this state directory.
pub fn snapshot_dir(state: &Path) -> PathBuf {
    let digest = blake3::hash(state.as_os_str().as_encoded_bytes()).to_hex();
    Path::new("/dev/shm").join(format!("robust-{}", &digest[..16]))
}

/// Removes the folder at the end of the job, after what broken engines and services left in shared memory:
/// whoever started the next one of them would have swept it, and there is no next one.
pub fn give_back(snapshots: &Path) -> Result<(), StateDirError> {
    let folders = std::fs::read_dir(snapshots).into_iter().flatten().flatten();
    for folder in folders
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
    {
        end_processes(folder.as_os_str());
        match sweep(&folder) {
            Ok(swept) if !swept.removed.is_empty() => tracing::info!(
                files = swept.removed.len(),
                bytes = swept.bytes(),
                "removed what a broken program left in shared memory"
            ),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "what a broken program left stays"),
        }
    }
    remove_folder(snapshots)
}

/// A broken engine's processes were killed, and nobody waited for them.
fn end_processes(owner: &OsStr) {
    let deadline = Instant::now() + GONE;
    loop {
        let left = leftovers(&[(ENGINE_VARIABLE, owner)]);
        if left.is_empty() || Instant::now() > deadline {
            return;
        }
        for process in left {
            if let Err(error) = process.kill() {
                tracing::debug!(%error, pid = process.pid, "a leftover is not killed");
            }
        }
        std::thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_directory_has_its_own_folder_and_keeps_it() {
        assert_eq!(snapshot_dir(Path::new("/a")), snapshot_dir(Path::new("/a")));
        assert_ne!(snapshot_dir(Path::new("/a")), snapshot_dir(Path::new("/b")));
    }
}
