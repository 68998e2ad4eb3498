//! Durable files.
use crate::CkptError;
use std::fs::File;
use std::io::{self, Read, Write};
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

/// Replaces a small file: all of it is there after a crash, or what was there before.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), CkptError> {
    let temporary = path.with_extension("tmp");
    let written = File::create(&temporary).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(CkptError::io("write", &temporary))?;
    std::fs::rename(&temporary, path).map_err(CkptError::io("rename", &temporary))
}

/// Makes names in a folder durable.
pub fn sync_dir(dir: &Path) -> Result<(), CkptError> {
    File::open(dir)
        .and_then(|d| d.sync_all())
        .map_err(CkptError::io("sync", dir))
}

/// Removes a checkpoint's folder. The manifest goes first: one half removed does not exist.
pub fn remove(dir: &Path) -> Result<(), CkptError> {
    let absent_is_fine = |result: io::Result<()>| match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    };
    absent_is_fine(std::fs::remove_file(dir.join(crate::manifest::FILE)))
        .and_then(|()| absent_is_fine(std::fs::remove_dir_all(dir)))
        .map_err(CkptError::io("remove", dir))
}
