//! What really lies in the memory that is served: for whoever doubts it, and for tests.

use robust_shared::weights::Manifest;
use robust_weights::Slots;
use serde::Serialize;

/// How often a version that is replaced while it is read is read again.
const ATTEMPTS: usize = 8;

/// The served weights as their memory has them now, not as they were when they came.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Digest {
    /// The version.
    pub weight_version: String,
    /// As in its manifest, hex: equal to the published one if every byte is.
    pub digest: String,
    /// Size of a chunk.
    pub chunk_bytes: u64,
    /// The chunks' digests, hex.
    pub chunk_xxh3: Vec<String>,
}

/// Reads every byte of what is served; none when nothing is.
pub(super) fn of(slots: &Slots) -> Option<Digest> {
    (0..ATTEMPTS).find_map(|_| attempt(slots))
}

fn attempt(slots: &Slots) -> Option<Digest> {
    let (served, buffer) = (slots.served()?, slots.current());
    let known = &served.manifest;
    let found = buffer
        .with_bytes(|bytes| {
            let tensors = known.tensors.clone();
            let built = Manifest::build(served.version, bytes, known.chunk_bytes, tensors)?;
            let built = match known.has_blake3() {
                true => built.named_by(bytes)?,
                false => built,
            };
            built.held_by(known.shards.clone())
        })
        .ok()?
        .ok()?;
    // Between the two looks the served version may have become another.
    let still = slots.served()?.version == served.version;
    still.then(|| Digest {
        weight_version: served.version.0.to_string(),
        digest: found.digest_hex(),
        chunk_bytes: found.chunk_bytes,
        chunk_xxh3: found
            .chunk_xxh3
            .iter()
            .map(|d| format!("{d:016x}"))
            .collect(),
    })
}
