//! Pins: a file beside the manifest, so that a lost database forgets none.
use crate::disk::Disk;
use crate::{CkptError, files};
use std::path::Path;

/// The mark's name.
const FILE: &str = "pinned";

/// Whether an operator wants this checkpoint to stay.
pub fn is_pinned(dir: &Path) -> bool {
    dir.join(FILE).exists()
}

/// Makes it stay, or lets it go with the others; durable when it returns.
pub fn set(disk: &dyn Disk, dir: &Path, pinned: bool) -> Result<(), CkptError> {
    let path = dir.join(FILE);
    match pinned {
        true => files::replace(disk, &path, b"")?,
        false => match disk.remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(CkptError::io("remove", &path)(e));
            }
            _ => {}
        },
    }
    files::sync_dir(disk, dir)
}
