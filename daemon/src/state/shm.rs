//! Where trainer snapshots live: memory that outlives the trainer's processes.
use super::{StateDirError, make_private_dir, remove_folder};
use robust_tree::{ENGINE_VARIABLE, WAITED_FILE, leftovers, sweep};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long killed processes of a user's program may take to go.
const GONE: Duration = Duration::from_secs(5);
/// Pause between looks at whether they are.
const LOOK: Duration = Duration::from_millis(20);

/// Where snapshots lie unless [`FOLDER_VARIABLE`] says otherwise.
const SHARED_MEMORY: &str = "/dev/shm";
/// Names another folder for them: one on a disk, for a machine whose memory does not hold two copies of
/// weights and optimiser besides those that are trained. The pages are then the kernel's to write back.
const FOLDER_VARIABLE: &str = "ROBUST_SHM";
/// How the names of our folders begin.
const PREFIX: &str = "robust-";
/// A number that the kernel draws when the machine starts.
const BOOT: &str = "/proc/sys/kernel/random/boot_id";

/// The folder in shared memory that belongs to this state directory.
pub fn snapshot_dir(state: &Path) -> PathBuf {
    match std::env::var_os(FOLDER_VARIABLE).filter(|folder| !folder.is_empty()) {
        None => Path::new(SHARED_MEMORY).join(own_name(state)),
        Some(folder) => {
            let boot = std::fs::read_to_string(BOOT).unwrap_or_default();
            on_disk(Path::new(&folder), state, boot.trim())
        }
    }
}

/// What is a state directory's own outside of it is called so.
pub fn own_name(state: &Path) -> String {
    let digest = blake3::hash(state.as_os_str().as_encoded_bytes()).to_hex();
    format!("{PREFIX}{}", &digest[..16])
}

/// Memory forgets when the machine goes down, and so must a folder on a disk: of pages that were not
/// written yet a slot's seal knows nothing. So every start of the machine has a folder of its own.
fn on_disk(folder: &Path, state: &Path, boot: &str) -> PathBuf {
    folder.join(own_name(state)).join(boot)
}

/// Makes the folder for snapshots, and on a disk the one around it: both names can be guessed.
pub fn make_snapshots(snapshots: &Path) -> Result<(), StateDirError> {
    let is_ours = |folder: &&Path| {
        let name = folder.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| name.starts_with(PREFIX))
    };
    if let Some(of_state) = snapshots.parent().filter(is_ours) {
        make_private_dir(of_state)?;
    }
    make_private_dir(snapshots)
}

/// Removes what lies in a folder on a disk since before the machine was started anew.
pub fn remove_of_earlier_boots(snapshots: &Path) -> Result<(), StateDirError> {
    let of_memory = snapshots.parent() == Some(Path::new(SHARED_MEMORY));
    let Some(boots) = snapshots.parent().filter(|_| !of_memory) else {
        return Ok(());
    };
    let others = std::fs::read_dir(boots).into_iter().flatten().flatten();
    for other in others.map(|entry| entry.path()) {
        if other != snapshots {
            remove_folder(&other)?;
        }
    }
    Ok(())
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
        // A program that waited before it was this instance's keeps the mark that it had then.
        if let Ok(mark) = std::fs::read(folder.join(WAITED_FILE)) {
            end_processes(OsStr::from_bytes(&mark));
        }
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
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, Stdio};

    #[test]
    fn the_end_of_the_job_ends_what_is_left_of_a_program_that_was_a_spare_too() {
        let dir = tempfile::tempdir().unwrap();
        let snapshots = dir.path().join("robust-snapshots");
        let folder = snapshots.join("engine-trainer-0");
        std::fs::create_dir_all(&folder).unwrap();
        let mark = snapshots.join("spare-trainer-7-8");
        std::fs::write(folder.join(WAITED_FILE), mark.as_os_str().as_bytes()).unwrap();
        let left = |owner: &Path| {
            let mut command = Command::new("sleep");
            command.arg("600").env(ENGINE_VARIABLE, owner);
            command.stdin(Stdio::null()).spawn().unwrap()
        };
        let children = [left(&folder), left(&mark)];
        // Between fork and exec they have this test's environment.
        let is_seen = |owner: &Path| leftovers(&[(ENGINE_VARIABLE, owner.as_os_str())]).len() == 1;
        let until = Instant::now() + Duration::from_secs(20);
        while !(is_seen(&folder) && is_seen(&mark)) {
            assert!(Instant::now() < until, "both run within 20 s");
            std::thread::sleep(LOOK);
        }
        give_back(&snapshots).unwrap();
        for mut child in children {
            // It was waited for until none of them was left.
            let ended = child.try_wait().unwrap();
            let _ = child.kill();
            let _ = child.wait();
            assert_eq!(ended.and_then(|status| status.signal()), Some(9));
        }
        assert!(!snapshots.exists());
    }

    #[test]
    fn on_a_disk_snapshots_of_before_the_machine_was_started_anew_are_gone() {
        let disk = tempfile::tempdir().unwrap();
        let of = |state: &str, boot| on_disk(disk.path(), Path::new(state), boot);
        for (state, boot) in [("/a", "old"), ("/a", "new"), ("/b", "old")] {
            std::fs::create_dir_all(of(state, boot)).unwrap();
        }
        remove_of_earlier_boots(&of("/a", "new")).unwrap();
        assert!(of("/a", "new").exists() && of("/b", "old").exists());
        assert!(!of("/a", "old").exists());
        remove_of_earlier_boots(&Path::new(SHARED_MEMORY).join("robust-none")).unwrap();
    }

    #[test]
    fn each_state_directory_has_its_own_folder_and_keeps_it() {
        assert_eq!(snapshot_dir(Path::new("/a")), snapshot_dir(Path::new("/a")));
        assert_ne!(snapshot_dir(Path::new("/a")), snapshot_dir(Path::new("/b")));
    }
}
