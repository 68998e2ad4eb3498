//! Where trainer snapshots live: memory that outlives the trainer's processes.
use std::path::{Path, PathBuf};

/// The folder in shared memory that belongs to this state directory.
pub fn snapshot_dir(state: &Path) -> PathBuf {
    let digest = blake3::hash(state.as_os_str().as_encoded_bytes()).to_hex();
    Path::new("/dev/shm").join(format!("robust-{}", &digest[..16]))
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
