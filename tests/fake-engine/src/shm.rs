//! Files in `/dev/shm` as the real engines make them: mapped by the processes of the tree, removed
//! by a leader that ends in order, left by one that is killed. The semaphore is in nobody's maps,
//! there as here.

use crate::protocol::Dialect;
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// Makes the files of a new tree; they take no memory before they are written.
pub fn create(dialect: Dialect) -> std::io::Result<Vec<PathBuf>> {
    let files = match dialect {
        Dialect::Vllm => vec![
            (format!("psm_{:08x}", drawn(0) as u32), 240 * MIB),
            (format!("psm_{:08x}", drawn(1) as u32), 160 * MIB),
            (format!("sem.mp-{:08x}", drawn(2) as u32), 32),
        ],
        Dialect::Sglang => {
            let name = format!(
                "sglang_loads_{:012x}_{:08x}.shm",
                drawn(0) >> 16,
                drawn(1) as u32
            );
            vec![
                (name, 16_396),
                (format!("sem.mp-{:08x}", drawn(2) as u32), 32),
            ]
        }
    };
    let mut made = Vec::new();
    for (name, bytes) in files {
        let path = Path::new("/dev/shm").join(name);
        File::create_new(&path)?.set_len(bytes)?;
        made.push(path);
    }
    Ok(made)
}

/// Maps the files for the rest of this process's life, so that `/proc/PID/maps` names them.
pub fn map(files: &[PathBuf]) -> std::io::Result<()> {
    for path in files
        .iter()
        .filter(|path| !path.to_string_lossy().contains("/sem."))
    {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let bytes = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
        // SAFETY: a new mapping that nothing in this process ever looks into.
        #[allow(unsafe_code)]
        unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &file,
                0,
            )?
        };
    }
    Ok(())
}

/// Removes the files.
pub fn remove<'a>(files: impl IntoIterator<Item = &'a PathBuf>) {
    for path in files {
        let _ = std::fs::remove_file(path);
    }
}

/// A number that another tree does not draw.
fn drawn(salt: u64) -> u64 {
    let now = std::time::UNIX_EPOCH
        .elapsed()
        .map_or(0, |d| d.as_nanos() as u64);
    xxhash_rust::xxh3::xxh3_64_with_seed(
        &now.to_le_bytes(),
        u64::from(std::process::id()) << 8 | salt,
    )
}
