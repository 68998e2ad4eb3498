//! The engine's checksums of its parameters against the published bytes.
//!
//! Both engines hash a parameter's bytes with SHA-256 (SGLang says the first 16 digits) under the names
//! of their own modules: queries, keys and values are one parameter there, and so are gate and up; the
//! vocabulary is padded with rows of zeros. A parameter that an engine keeps packed elsewhere is the
//! hash of nothing and says nothing. With tensor parallelism each rank has a part, which is not compared.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use robust_engine::Checksums;
use safetensors::tensor::Metadata;
use sha2::{Digest, Sha256};

/// Engines pad their vocabulary to a multiple of so many rows.
const VOCABULARY_ROWS: usize = 64;
/// The first digits of SHA-256 over nothing.
const NOTHING: &str = "e3b0c44298fc1c14";
/// The parts that engines fuse, in the order in which they lie.
const FUSED: [(&str, &[&str]); 2] = [
    ("qkv_proj", &["q_proj", "k_proj", "v_proj"]),
    ("gate_up_proj", &["gate_proj", "up_proj"]),
];

/// A parameter in the engine's memory has other bytes, or the published ones cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Differs {
    /// The bytes differ.
    #[error("its parameter {name} has checksum {got}, published was {wanted}")]
    Parameter {
        /// The engine's name of it.
        name: String,
        /// What the engine says.
        got: String,
        /// Of the published bytes.
        wanted: String,
    },
    /// The published file cannot be read.
    #[error("reading the published weights: {0}")]
    Read(#[from] std::io::Error),
    /// The published file is not one of weights.
    #[error("reading the published weights: {0}")]
    Format(#[from] serde_json::Error),
}

/// Compares what can be compared; answers how many parameters that were.
pub(super) fn compare(said: &Checksums, folder: &Path) -> Result<usize, Differs> {
    let mut ranks = said.ranks.values();
    let (Some(rank), None) = (ranks.next(), ranks.next()) else {
        return Ok(0);
    };
    let published = Published::open(&folder.join("model.safetensors"))?;
    let mut compared = 0;
    for (name, got) in rank.iter().filter(|(_, sum)| !sum.starts_with(NOTHING)) {
        let Some(wanted) = published.checksum(name)? else {
            continue;
        };
        if !wanted.starts_with(got.as_str()) || got.is_empty() {
            return Err(Differs::Parameter {
                name: name.clone(),
                got: got.clone(),
                wanted: wanted[..got.len().clamp(16, wanted.len())].to_owned(),
            });
        }
        compared += 1;
    }
    Ok(compared)
}

/// The published tensors.
struct Published {
    file: File,
    data_at: u64,
    metadata: Metadata,
}

impl Published {
    fn open(path: &Path) -> Result<Self, Differs> {
        let file = File::open(path)?;
        let mut length = [0; 8];
        file.read_exact_at(&mut length, 0)?;
        let length = u64::from_le_bytes(length);
        let mut head = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        file.read_exact_at(&mut head, 8)?;
        let metadata: Metadata = serde_json::from_slice(&head)?;
        Ok(Self {
            file,
            data_at: 8 + length,
            metadata,
        })
    }

    /// SHA-256 of a parameter of the engine's, hex; none when it is made of nothing that was published.
    fn checksum(&self, name: &str) -> Result<Option<String>, Differs> {
        let mut hash = Sha256::new();
        for part in parts(name) {
            if !self.add(&part, &mut hash)? {
                return Ok(None);
            }
        }
        let digits = hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(Some(digits))
    }

    /// Adds a tensor's bytes, padded as engines pad them; false when there is no such tensor.
    fn add(&self, name: &str, hash: &mut Sha256) -> Result<bool, Differs> {
        let Some(info) = self.metadata.info(name) else {
            return Ok(false);
        };
        let (start, end) = info.data_offsets;
        let mut block = vec![0; (end - start).clamp(1, 1 << 20)];
        let mut at = start;
        while at < end {
            let take = block.len().min(end - at);
            self.file
                .read_exact_at(&mut block[..take], self.data_at + at as u64)?;
            hash.update(&block[..take]);
            at += take;
        }
        if is_vocabulary(name)
            && let Some(&rows) = info.shape.first()
            && rows > 0
        {
            let padding = rows.next_multiple_of(VOCABULARY_ROWS) - rows;
            hash.update(vec![0; padding * ((end - start) / rows)]);
        }
        Ok(true)
    }
}

fn is_vocabulary(name: &str) -> bool {
    name.ends_with("embed_tokens.weight") || name.ends_with("lm_head.weight")
}

/// The published tensors that a parameter of an engine is made of.
fn parts(name: &str) -> Vec<String> {
    let fused = FUSED.iter().find(|(whole, _)| name.contains(whole));
    match fused {
        Some((whole, parts)) => parts.iter().map(|part| name.replace(whole, part)).collect(),
        None => vec![name.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::{BTreeMap, HashMap};

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let tensors: Vec<(&str, Vec<usize>, Vec<u8>)> = vec![
            ("model.embed_tokens.weight", vec![3, 1], vec![1; 12]),
            ("l.q_proj.weight", vec![1], vec![2; 4]),
            ("l.k_proj.weight", vec![1], vec![3; 4]),
            ("l.v_proj.weight", vec![1], vec![4; 4]),
        ];
        let view = |shape: &Vec<usize>, bytes| {
            safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes)
        };
        let views: HashMap<_, _> = tensors
            .iter()
            .map(|(name, shape, bytes)| (*name, view(shape, bytes).unwrap()))
            .collect();
        let path = dir.path().join("model.safetensors");
        safetensors::serialize_to_file(views, None, &path).unwrap();
        dir
    }

    fn sha(bytes: &[u8]) -> String {
        Sha256::digest(bytes)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect()
    }

    fn said(sums: &[(&str, String)]) -> Checksums {
        let rank: BTreeMap<_, _> = sums
            .iter()
            .map(|(name, sum)| ((*name).to_owned(), sum.clone()))
            .collect();
        Checksums {
            engine: None,
            ranks: [("0".to_owned(), rank)].into(),
        }
    }

    fn good() -> Vec<(&'static str, String)> {
        let mut embedding = vec![1; 12];
        embedding.resize(64 * 4, 0);
        vec![
            (
                "model.embed_tokens.weight",
                sha(&embedding)[..16].to_owned(),
            ),
            (
                "l.qkv_proj.weight",
                sha(&[2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4]),
            ),
            ("l.packed.weight", sha(&[])),
            ("not.published", sha(&[9])),
        ]
    }

    #[test]
    fn fused_and_padded_parameters_are_made_of_what_was_published() {
        assert_eq!(compare(&said(&good()), folder().path()).unwrap(), 2);
    }

    #[test]
    fn another_byte_is_told_with_the_parameters_name() {
        let mut sums = good();
        sums[1].1 = sha(&[5]);
        let error = compare(&said(&sums), folder().path()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("its parameter l.qkv_proj.weight has checksum "),
            "{text}"
        );
    }

    #[test]
    fn parts_of_a_tensor_parallel_engine_are_not_compared() {
        let mut said = said(&good());
        said.ranks.insert("1".to_owned(), BTreeMap::new());
        assert_eq!(compare(&said, folder().path()).unwrap(), 0);
    }
}
