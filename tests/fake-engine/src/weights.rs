//! A folder of weights: really read, digested, and its checksums told as the real engines tell
//! them.

use crate::protocol::Dialect;
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// The weights of one folder, as a digest and as the checksums that the dialect tells.
#[derive(Debug, Clone)]
pub struct Weights {
    /// What tokens are made of.
    pub digest: u64,
    /// By name as the engine has it, in the file's order of layers.
    checksums: Vec<(String, String)>,
}

/// Weights that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The folder, or the file in it, is not there or not readable.
    #[error("cannot read {path}: {source}")]
    Read {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The file is no safetensors file, or not all of one.
    #[error("{path} is no safetensors file: {source}")]
    Format {
        path: PathBuf,
        source: safetensors::SafeTensorError,
    },
}

impl Weights {
    /// Weights that nobody wrote, for a model of which only the configuration is there.
    pub fn dummy() -> Self {
        Self {
            digest: 0,
            checksums: Vec::new(),
        }
    }

    /// Reads `model.safetensors` of the folder.
    pub fn load(folder: &Path, dialect: Dialect) -> Result<Self, WeightsError> {
        let path = folder.join("model.safetensors");
        let bytes = std::fs::read(&path).map_err(|source| WeightsError::Read {
            path: path.clone(),
            source,
        })?;
        let tensors = SafeTensors::deserialize(&bytes)
            .map_err(|source| WeightsError::Format { path, source })?;
        Ok(Self {
            digest: digest(&tensors),
            checksums: checksums(&tensors, dialect),
        })
    }

    /// Something else lies in memory: it was given back and came again, or a load went wrong.
    pub fn lose(&mut self) {
        self.digest ^= 0x5eed_0fda_7a5b_a6e1;
        for (_, sum) in &mut self.checksums {
            let other = hex(&Sha256::digest(sum.as_bytes()));
            *sum = other[..sum.len()].to_owned();
        }
    }

    /// The answer to a call for checksums.
    pub fn told(&self, dialect: Dialect) -> Value {
        let sums: Map<_, _> = self
            .checksums
            .iter()
            .map(|(n, s)| (n.clone(), json!(s)))
            .collect();
        match dialect {
            Dialect::Vllm => json!({ "checksums": sums }),
            Dialect::Sglang => {
                let rank = overall(&self.checksums);
                json!({
                    "success": true,
                    "message": "Success.",
                    "ranks": [{
                        "checksums": sums,
                        "per_gpu_checksum": rank,
                        "parallelism_info": [{
                            "role": "target", "tp_rank": 0, "tp_size": 1, "dp_rank": 0,
                            "dp_size": 1,
                            "pp_rank": 0, "pp_size": 1, "rank": 0, "size": 1,
                        }],
                    }],
                    "per_engine_checksum": hex(&Sha256::digest(rank.as_bytes())),
                })
            }
        }
    }
}

/// Over names and bytes, in the order of names: how the file lays them out does not matter.
fn digest(tensors: &SafeTensors<'_>) -> u64 {
    let mut names = tensors.names();
    names.sort();
    let mut hash = Xxh3::new();
    for name in names {
        if let Ok(tensor) = tensors.tensor(name) {
            hash.update(name.as_bytes());
            hash.update(tensor.data());
        }
    }
    hash.digest()
}

/// Every parameter as the engine has it: query, key and value in one, gate and up in one.
fn checksums(tensors: &SafeTensors<'_>, dialect: Dialect) -> Vec<(String, String)> {
    let mut names = tensors.names();
    names.sort();
    names
        .iter()
        .filter_map(|name| checksum(tensors, name, dialect))
        .collect()
}

fn checksum(tensors: &SafeTensors<'_>, name: &str, dialect: Dialect) -> Option<(String, String)> {
    let fused: &[(&str, &str)] = &[("q_proj", "qkv_proj"), ("gate_proj", "gate_up_proj")];
    if ["k_proj", "v_proj", "up_proj"]
        .iter()
        .any(|part| name.contains(part))
    {
        return None;
    }
    let mut parts = vec![tensors.tensor(name).ok()?];
    let mut whole = name.to_owned();
    for (first, all) in fused.iter().filter(|(first, _)| name.contains(first)) {
        whole = name.replace(first, all);
        let rest: &[&str] = if *all == "qkv_proj" {
            &["k_proj", "v_proj"]
        } else {
            &["up_proj"]
        };
        for part in rest {
            parts.push(tensors.tensor(&name.replace(first, part)).ok()?);
        }
    }
    let sum = sum(&parts, &whole, dialect);
    Some(match dialect {
        Dialect::Sglang => (whole, sum[..16].to_owned()),
        Dialect::Vllm => (format!("dp0:pp0:pcp0:tp0:{whole}"), sum),
    })
}

fn sum(parts: &[TensorView<'_>], name: &str, dialect: Dialect) -> String {
    let mut hash = Sha256::new();
    // vLLM on a processor packs these elsewhere and tells the digest of nothing.
    let packed = name.contains("_proj.") && dialect == Dialect::Vllm;
    for part in parts.iter().filter(|_| !packed) {
        hash.update(part.data());
    }
    if let ([embed], true) = (parts, name.contains("embed_tokens")) {
        hash.update(padding(embed));
    }
    hex(&hash.finalize())
}

/// Zero rows up to a multiple of 64, as both engines pad the embedding.
fn padding(embed: &TensorView<'_>) -> Vec<u8> {
    let rows = embed.shape().first().copied().unwrap_or(1).max(1);
    vec![0; embed.data().len() / rows * (rows.next_multiple_of(64) - rows)]
}

/// SGLang's digest of a rank: over names and checksums, in the order of names.
fn overall(checksums: &[(String, String)]) -> String {
    let mut sorted: Vec<_> = checksums.iter().collect();
    sorted.sort();
    let mut hash = Sha256::new();
    for (name, sum) in sorted {
        hash.update(name);
        hash.update(sum);
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
