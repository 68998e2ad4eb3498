//! The digest of the weights and optimiser that a run ended with.
use crate::error::CliError;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// Hex digest (blake3) of the tensors' bytes of a step's checkpoint, over all ranks in order. The
/// shards' headers are left out: they name the generation of the gang that wrote them, which differs
/// between runs with different faults.
pub fn digest(checkpoints: &Path, step: u64) -> Result<String, CliError> {
    let folder = checkpoints.join(format!("step-{step}"));
    let failed = |path: &Path, e: std::io::Error| {
        CliError::Failed(format!(
            "cannot read the final weights, {}: {e}",
            path.display()
        ))
    };
    let mut shards: Vec<(u32, PathBuf)> = std::fs::read_dir(&folder)
        .map_err(|e| failed(&folder, e))?
        .flatten()
        .filter_map(|entry| Some((rank(&entry.file_name().to_string_lossy())?, entry.path())))
        .collect();
    shards.sort();
    if shards.is_empty() {
        let none = std::io::Error::other("it holds no shard");
        return Err(failed(&folder, none));
    }
    let mut hasher = blake3::Hasher::new();
    for (_, path) in &shards {
        add_tensors(&mut hasher, path).map_err(|e| failed(path, e))?;
    }
    Ok(hasher.finalize().to_hex().to_string())
}

fn rank(name: &str) -> Option<u32> {
    let middle = name.strip_prefix("rank-")?.strip_suffix(".safetensors")?;
    middle.parse().ok()
}

/// A safetensors file is the header's length (8 bytes, little endian), the header, the tensors.
fn add_tensors(hasher: &mut blake3::Hasher, path: &Path) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let mut length = [0; 8];
    file.read_exact(&mut length)?;
    let tensors = 8_u64.saturating_add(u64::from_le_bytes(length));
    if tensors >= file.metadata()?.len() {
        return Err(std::io::Error::other("it holds no tensors"));
    }
    file.seek(SeekFrom::Start(tensors))?;
    hasher.update_reader(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn shard(folder: &Path, rank: u32, header: &[u8], tensors: &[u8]) {
        let length = (header.len() as u64).to_le_bytes();
        let bytes = [&length[..], header, tensors].concat();
        std::fs::write(folder.join(format!("rank-{rank}.safetensors")), bytes).unwrap();
    }

    #[test]
    fn the_digest_is_of_the_tensors_alone_over_all_ranks_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let of = |header: &[u8], parts: [&[u8]; 2]| {
            let step = dir.path().join("step-4");
            std::fs::create_dir_all(&step).unwrap();
            std::fs::write(step.join("manifest.json"), header).unwrap();
            shard(&step, 0, header, parts[0]);
            shard(&step, 1, header, parts[1]);
            digest(dir.path(), 4).unwrap()
        };
        let first = of(b"{generation 1}", [b"ab", b"cd"]);
        assert_eq!(first, of(b"{generation 17}", [b"ab", b"cd"]));
        assert_ne!(first, of(b"{generation 1}", [b"cd", b"ab"]));
        assert_ne!(first, of(b"{generation 1}", [b"ab", b"ce"]));
    }

    #[test]
    fn a_missing_or_broken_checkpoint_is_an_error_with_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let missing = digest(dir.path(), 9).unwrap_err().to_string();
        assert!(missing.contains("step-9"), "{missing}");
        std::fs::create_dir(dir.path().join("step-9")).unwrap();
        assert!(
            digest(dir.path(), 9)
                .unwrap_err()
                .to_string()
                .contains("no shard")
        );
        shard(&dir.path().join("step-9"), 0, b"{}", b"");
        let empty = digest(dir.path(), 9).unwrap_err().to_string();
        assert!(empty.contains("no tensors"), "{empty}");
    }
}
