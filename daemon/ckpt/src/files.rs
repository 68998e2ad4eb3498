//! Durable files.
use crate::CkptError;
use crate::disk::{Disk, Open};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use xxhash_rust::xxh3::Xxh3;

/// Fills as much of `bytes` as the file has.
pub fn fill(file: &mut File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read(&mut bytes[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// Length and digest (XXH3-64) of a file. `read` hears of every piece, in bytes.
pub fn digest(path: &Path, read: &mut dyn FnMut(u64)) -> io::Result<(u64, u64)> {
    let mut file = File::open(path)?;
    let (mut hash, mut total) = (Xxh3::new(), 0);
    let mut bytes = vec![0; 1 << 20];
    loop {
        let filled = fill(&mut file, &mut bytes)?;
        if filled == 0 {
            return Ok((total, hash.digest()));
        }
        total += filled as u64;
        hash.update(&bytes[..filled]);
        read(filled as u64);
    }
}

/// Replaces a small file: all of it is there after a crash, or what was there before. Its name is
/// durable once the folder is synced.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), CkptError> {
    let temporary = path.with_extension("tmp");
    let written = disk.open(&temporary, Open::REPLACE).and_then(|file| {
        file.write_all_at(bytes, 0)?;
        file.sync()
    });
    written
        .map_err(CkptError::io("write", &temporary))
        .and_then(|()| {
            let renamed = disk.rename(&temporary, path);
            renamed.map_err(CkptError::io("rename", &temporary))
        })
        .inspect_err(|_| {
            // Gives its space back; the error at hand is the one to tell.
            let _ = disk.remove_file(&temporary);
        })
}

/// Makes names in a folder durable.
pub fn sync_dir(disk: &dyn Disk, dir: &Path) -> Result<(), CkptError> {
    disk.sync_dir(dir).map_err(CkptError::io("sync", dir))
}
