//! Models in Hugging Face's folder form: `config.json` and `model.safetensors`, or shards of it.

mod read;

use std::path::{Path, PathBuf};

use robust_ckpt::CkptError;
use safetensors::Dtype;
use safetensors::tensor::{SafeTensorError, TensorView};

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
    /// The weights' files are not there, or are not what headers and index say.
    #[error("model weights: {0}")]
    Files(#[from] CkptError),
    /// The weights cannot be written as a safetensors file.
    #[error("{path} cannot be written as a safetensors file: {source}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What the library said.
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

/// Loads a model folder, whole or sharded; weights may be float32, bfloat16 or float16 and become
/// float32.
pub fn load(folder: &Path) -> Result<Qwen3, HfError> {
    let config = Qwen3Config::read(&folder.join(CONFIG_FILE))?;
    let mut model = Qwen3::zeroed(config)?;
    load_into(&mut model, folder)?;
    Ok(model)
}

/// Reads the weights of a folder into a model of its shape, without a second copy of them in memory.
/// After an error the model's weights are undefined, unless it is one of names, shapes or types: those
/// are looked at before the first weight changes.
pub fn load_into(model: &mut Qwen3, folder: &Path) -> Result<(), HfError> {
    read::weights(model, folder)
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
    write_weights(model, &partial.join(WEIGHTS_FILE))?;
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

/// Writes the weights straight from the flat buffer: a large model is not in memory twice.
fn write_weights(model: &Qwen3, path: &Path) -> Result<(), HfError> {
    let bytes = model.params().as_bytes();
    let view = |spec: &TensorSpec| {
        let shape = spec.shape.iter().map(|&size| size as usize).collect();
        let data = &bytes[spec.offset * size_of::<f32>()..(spec.offset + spec.len) * 4];
        Ok((spec.name.clone(), TensorView::new(Dtype::F32, shape, data)?))
    };
    let views = model.params().layout().iter().map(view);
    let metadata = [("format".to_string(), "pt".to_string())].into();
    let written = views
        .collect::<Result<Vec<_>, SafeTensorError>>()
        .and_then(|views| safetensors::serialize_to_file(views, Some(metadata), path));
    written.map_err(|source| HfError::Format {
        path: path.into(),
        source,
    })?;
    let finish = || {
        // The library makes files that only their owner can read; this one is as its neighbour is.
        let beside = std::fs::metadata(path.with_file_name(CONFIG_FILE))?;
        std::fs::set_permissions(path, beside.permissions())?;
        std::fs::File::open(path)?.sync_all()
    };
    finish().map_err(|source| HfError::Io {
        doing: "writing",
        path: path.into(),
        source,
    })
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
