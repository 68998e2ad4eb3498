//! Models in Hugging Face's folder form: `config.json` and `model.safetensors`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use safetensors::tensor::{SafeTensorError, TensorView};
use safetensors::{Dtype, SafeTensors};

use super::config::{ConfigError, Qwen3Config};
use super::flat::TensorSpec;
use super::qwen3::Qwen3;

/// Name of the architecture's file in a model folder.
pub const CONFIG_FILE: &str = "config.json";
/// Name of the weights' file in a model folder.
pub const WEIGHTS_FILE: &str = "model.safetensors";

/// Why a model folder cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HfError {
    /// The architecture is unusable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file could not be read or written.
    #[error("{doing} {path}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is not in safetensors format.
    #[error("{path} is not a readable safetensors file: {source}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        source: SafeTensorError,
    },
    /// A tensor is missing or does not fit config.json.
    #[error("{path}: tensor {name}: {why}")]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// What is wrong with it.
        why: String,
    },
}

/// Loads a model folder; weights may be float32, bfloat16 or float16.
pub fn load(folder: &Path) -> Result<Qwen3, HfError> {
    let config = Qwen3Config::read(&folder.join(CONFIG_FILE))?;
    let mut model = Qwen3::zeroed(config)?;
    let path = folder.join(WEIGHTS_FILE);
    let data = std::fs::read(&path).map_err(|source| HfError::Io {
        doing: "reading",
        path: path.clone(),
        source,
    })?;
    let bytes = flat_bytes(&model, &data, &path)?;
    let filled = model.params_mut().copy_from_bytes(&bytes);
    debug_assert!(filled.is_ok());
    Ok(model)
}

/// Writes a model folder as one rename: it is complete or not there. An existing folder of that
/// name is replaced file by file.
pub fn save(model: &Qwen3, folder: &Path) -> Result<(), HfError> {
    let partial = folder.with_extension(format!("partial-{}", std::process::id()));
    let io = |doing, path: &Path| {
        let path = path.to_path_buf();
        move |source| HfError::Io {
            doing,
            path,
            source,
        }
    };
    std::fs::create_dir_all(&partial).map_err(io("creating", &partial))?;
    let config = serde_json::to_vec_pretty(model.config()).map_err(|source| {
        HfError::Config(ConfigError::Parse {
            path: partial.join(CONFIG_FILE),
            source,
        })
    })?;
    write_synced(&partial.join(CONFIG_FILE), &config)?;
    let weights = serialize(model).map_err(|source| HfError::Format {
        path: partial.join(WEIGHTS_FILE),
        source,
    })?;
    write_synced(&partial.join(WEIGHTS_FILE), &weights)?;
    if std::fs::rename(&partial, folder).is_ok() {
        return Ok(());
    }
    // The weights last: whoever finds new weights finds the config they belong to.
    for name in [CONFIG_FILE, WEIGHTS_FILE] {
        let (from, to) = (partial.join(name), folder.join(name));
        std::fs::rename(&from, &to).map_err(io("replacing", &to))?;
    }
    std::fs::remove_dir(&partial).map_err(io("removing", &partial))
}

/// The weights as the bytes of a safetensors file.
pub fn serialize(model: &Qwen3) -> Result<Vec<u8>, SafeTensorError> {
    let bytes = model.params().as_bytes();
    let view = |spec: &TensorSpec| {
        let shape = spec.shape.iter().map(|&size| size as usize).collect();
        let data = &bytes[spec.offset * size_of::<f32>()..(spec.offset + spec.len) * 4];
        Ok((spec.name.clone(), TensorView::new(Dtype::F32, shape, data)?))
    };
    let views: Vec<_> = model
        .params()
        .layout()
        .iter()
        .map(view)
        .collect::<Result<_, SafeTensorError>>()?;
    let metadata = [("format".to_string(), "pt".to_string())].into();
    safetensors::serialize(views, Some(metadata))
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), HfError> {
    let write = || {
        let mut file = std::fs::File::create(path)?;
        std::io::Write::write_all(&mut file, bytes)?;
        file.sync_all()
    };
    write().map_err(|source| HfError::Io {
        doing: "writing",
        path: path.into(),
        source,
    })
}

/// The file's tensors as the bytes of the model's flat buffer.
fn flat_bytes(model: &Qwen3, data: &[u8], path: &Path) -> Result<Vec<u8>, HfError> {
    let file = SafeTensors::deserialize(data).map_err(|source| HfError::Format {
        path: path.into(),
        source,
    })?;
    let bad = |name: &str, why: String| HfError::Tensor {
        path: path.into(),
        name: name.into(),
        why,
    };
    let mut bytes = Vec::with_capacity(model.params().len_bytes());
    let mut unknown: BTreeSet<&str> = file.names().into_iter().collect();
    for spec in model.params().layout() {
        let Ok(view) = file.tensor(&spec.name) else {
            return Err(bad(&spec.name, "missing".into()));
        };
        unknown.remove(spec.name.as_str());
        if view
            .shape()
            .iter()
            .map(|&size| size as i64)
            .ne(spec.shape.iter().copied())
        {
            let why = format!(
                "has shape {:?}, config.json says {:?}",
                view.shape(),
                spec.shape
            );
            return Err(bad(&spec.name, why));
        }
        append_f32(&view, &mut bytes).map_err(|why| bad(&spec.name, why))?;
    }
    if model.config().tie_word_embeddings {
        // Some writers store the tied output layer all the same.
        unknown.remove("lm_head.weight");
    }
    match unknown.first() {
        Some(name) => Err(bad(name, "not part of this architecture".into())),
        None => Ok(bytes),
    }
}

fn append_f32(view: &TensorView<'_>, bytes: &mut Vec<u8>) -> Result<(), String> {
    let data = view.data();
    let halves = || {
        data.chunks_exact(2)
            .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
    };
    match view.dtype() {
        Dtype::F32 => bytes.extend_from_slice(data),
        Dtype::BF16 => {
            bytes.extend(halves().flat_map(|half| (u32::from(half) << 16).to_le_bytes()));
        }
        Dtype::F16 => bytes.extend(halves().flat_map(|half| f16_to_f32(half).to_le_bytes())),
        other => return Err(format!("has type {other:?}, expected F32, BF16 or F16")),
    }
    Ok(())
}

/// IEEE half to single precision; exact.
fn f16_to_f32(half: u16) -> f32 {
    let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(half >> 10 & 0x1f), f32::from(half & 0x3ff));
    match (exponent, fraction) {
        (0, _) => sign * fraction * 2f32.powi(-24),
        (31, 0.0) => sign * f32::INFINITY,
        (31, _) => f32::NAN,
        _ => sign * (1.0 + fraction / 1024.0) * 2f32.powi(exponent - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_precision_converts_exactly() {
        let pairs = [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_95),
            (0x0001, 5.960_464_5e-8),
        ];
        for (half, single) in pairs {
            assert_eq!(f16_to_f32(half), single);
        }
        assert_eq!(f16_to_f32(0x7c00), f32::INFINITY);
        assert!(f16_to_f32(0x7e00).is_nan());
    }
}
