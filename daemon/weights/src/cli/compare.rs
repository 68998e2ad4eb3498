//! How much of a version changed, of two files.
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use robust_shared::ids::WeightVersion;
use robust_shared::weights::Manifest;
use robust_transport::{Buffer, PIECE_BYTES};
use robust_weights::Version;
use robust_weights::made_up::one_tensor;
use serde_json::json;

/// Two versions, each a file of words of two bytes: bfloat16 numbers one after the other.
#[derive(clap::Args)]
pub(crate) struct CompareArgs {
    /// The older one.
    old: PathBuf,
    /// The newer one, of the same length.
    new: PathBuf,
}

/// Prints bytes of the version, of what differs, and of the patches that would be sent for it, as JSON.
pub(crate) fn compare(args: &CompareArgs) -> anyhow::Result<()> {
    let (old, new) = (version(1, &args.old)?, version(2, &args.new)?);
    let started = Instant::now();
    let made = robust_weights::compare(&old, &new).context("they have no patches")?;
    let seconds = started.elapsed().as_secs_f64();
    let (patches, words) = made;
    let bytes = new.manifest.bytes;
    println!(
        "{}",
        json!({"bytes": bytes, "changed_bytes": words * 2, "patches_bytes": patches, "seconds": seconds})
    );
    Ok(())
}

fn version(number: u64, path: &Path) -> anyhow::Result<Version> {
    let read = || {
        let mut file = std::fs::File::open(path)?;
        let bytes = file.metadata()?.len();
        let buffer = Buffer::new(usize::try_from(bytes)?)?;
        buffer.with_bytes_mut(|all| file.read_exact(all))??;
        let tensors = one_tensor("BF16", bytes);
        let of = |all: &[u8]| Manifest::build(WeightVersion(number), all, PIECE_BYTES, tensors);
        let manifest = Arc::new(buffer.with_bytes(of)??);
        anyhow::Ok(Version { manifest, buffer })
    };
    read().with_context(|| path.display().to_string())
}
