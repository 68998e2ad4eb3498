//! The folder of a checkpoint, as a whole.
use crate::disk::Disk;
use crate::{CkptError, manifest};
use std::io;
use std::path::Path;

/// Removes a checkpoint's folder. The manifest goes first, durably: one half removed does not exist,
/// after a power cut neither.
pub fn remove(disk: &dyn Disk, dir: &Path) -> Result<(), CkptError> {
    let manifest = dir.join(manifest::FILE);
    match disk.remove_file(&manifest) {
        Ok(()) => disk.sync_dir(dir),
        other => absent_is_fine(other),
    }
    .and_then(|()| absent_is_fine(remove_tree(disk, dir)))
    .map_err(CkptError::io("remove", dir))
}

fn remove_tree(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        match entry.file_type()?.is_dir() {
            true => remove_tree(disk, &path),
            false => absent_is_fine(disk.remove_file(&path)),
        }?;
    }
    disk.remove_dir(dir)
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
