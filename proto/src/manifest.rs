//! Manifests as the protocol carries them.

use crate::v1;
use robust_shared::ids::WeightVersion;
use robust_shared::weights::{Canary, Manifest, ManifestError, TensorSpec};
use std::ops::Range;

/// Why a manifest from elsewhere is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadManifest {
    /// Its numbers describe no buffer.
    #[error(transparent)]
    Numbers(#[from] ManifestError),
    /// Its BLAKE3 digests are no whole number of them.
    #[error("its BLAKE3 digests of chunks have {bytes} bytes, which is no multiple of 32")]
    Blake3Bytes {
        /// Bytes of all of them.
        bytes: usize,
    },
    /// It is not the one that was published.
    #[error("its blake3 digest is {got}, published was {expected}")]
    Digest {
        /// As published.
        expected: String,
        /// Of what arrived.
        got: String,
    },
}

/// For sending, with its digest.
pub fn to_proto(manifest: &Manifest) -> v1::Manifest {
    let tensor = |tensor: &TensorSpec| v1::TensorSpec {
        name: tensor.name.clone(),
        dtype: tensor.dtype.clone(),
        shape: tensor.shape.clone(),
        offset: tensor.offset,
        bytes: tensor.bytes,
    };
    let shard = |shard: &Range<u64>| v1::Shard {
        start: shard.start,
        end: shard.end,
    };
    v1::Manifest {
        version: manifest.version.0,
        bytes: manifest.bytes,
        chunk_bytes: manifest.chunk_bytes,
        chunk_xxh3: manifest.chunk_xxh3.clone(),
        tensors: manifest.tensors.iter().map(tensor).collect(),
        blake3: manifest.digest().to_vec(),
        shards: manifest.shards.iter().map(shard).collect(),
        chunk_blake3: manifest.chunk_blake3.concat(),
    }
}

/// A canary for sending.
pub fn canary_to_proto(canary: &Canary) -> v1::Canary {
    v1::Canary {
        prompt_ids: canary.prompt_ids.clone(),
        ids: canary.ids.clone(),
        logprobs: canary.logprobs.clone(),
        margins: canary.margins.clone(),
    }
}

/// A canary as received. Whether it is one, its check says.
pub fn canary_from_proto(canary: &v1::Canary) -> Canary {
    Canary {
        prompt_ids: canary.prompt_ids.clone(),
        ids: canary.ids.clone(),
        logprobs: canary.logprobs.clone(),
        margins: canary.margins.clone(),
    }
}

/// Its tensors.
pub fn tensors(manifest: &v1::Manifest) -> Vec<TensorSpec> {
    let tensor = |tensor: &v1::TensorSpec| TensorSpec {
        name: tensor.name.clone(),
        dtype: tensor.dtype.clone(),
        shape: tensor.shape.clone(),
        offset: tensor.offset,
        bytes: tensor.bytes,
    };
    manifest.tensors.iter().map(tensor).collect()
}

/// As received; refused unless it is consistent and has the digest it was published with.
pub fn from_proto(manifest: &v1::Manifest) -> Result<Manifest, BadManifest> {
    let (chunk_blake3, rest) = manifest.chunk_blake3.as_chunks();
    if !rest.is_empty() {
        let bytes = manifest.chunk_blake3.len();
        return Err(BadManifest::Blake3Bytes { bytes });
    }
    let read = Manifest {
        version: WeightVersion(manifest.version),
        bytes: manifest.bytes,
        chunk_bytes: manifest.chunk_bytes,
        chunk_xxh3: manifest.chunk_xxh3.clone(),
        chunk_blake3: chunk_blake3.to_vec(),
        tensors: tensors(manifest),
        shards: manifest.shards.iter().map(|s| s.start..s.end).collect(),
    };
    read.check()?;
    let got = read.digest();
    if manifest.blake3 != got {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        return Err(BadManifest::Digest {
            expected: hex(&manifest.blake3),
            got: hex(&got),
        });
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_manifest_survives_the_wire_and_a_changed_one_is_refused() {
        let buffer: Vec<u8> = (0..40).collect();
        let tensors = vec![TensorSpec {
            name: "w".into(),
            dtype: "F32".into(),
            shape: vec![5, 2],
            offset: 0,
            bytes: 40,
        }];
        let manifest = Manifest::build(WeightVersion(4), &buffer, 16, tensors).unwrap();
        let manifest = manifest.held_by(vec![0..24, 16..40]).unwrap();
        let mut sent = to_proto(&manifest);
        assert_eq!(from_proto(&sent).unwrap(), manifest);
        let mut other = sent.clone();
        other.shards[1].start = 20;
        sent.chunk_xxh3[1] ^= 1;
        for changed in [sent, other] {
            let refused = from_proto(&changed);
            assert!(matches!(refused, Err(BadManifest::Digest { .. })));
        }
    }

    #[test]
    fn blake3_digests_survive_the_wire_and_none_can_be_changed_or_left_out() {
        let buffer: Vec<u8> = (0..40).collect();
        let tensors = vec![TensorSpec {
            name: "w".into(),
            dtype: "F32".into(),
            shape: vec![5, 2],
            offset: 0,
            bytes: 40,
        }];
        let manifest = Manifest::build(WeightVersion(4), &buffer, 16, tensors).unwrap();
        let manifest = manifest.named_by(&buffer).unwrap();
        let sent = to_proto(&manifest);
        assert_eq!(from_proto(&sent).unwrap(), manifest);
        let refused = |change: fn(&mut Vec<u8>)| {
            let mut other = sent.clone();
            change(&mut other.chunk_blake3);
            from_proto(&other).unwrap_err()
        };
        assert!(matches!(
            refused(|d| d[40] ^= 1),
            BadManifest::Digest { .. }
        ));
        assert!(matches!(refused(Vec::clear), BadManifest::Digest { .. }));
        assert_eq!(
            refused(|d| d.truncate(64)).to_string(),
            "2 BLAKE3 digests for 3 chunks: there has to be one of each, or none"
        );
        assert_eq!(
            refused(|d| d.truncate(65)),
            BadManifest::Blake3Bytes { bytes: 65 }
        );
    }
}
