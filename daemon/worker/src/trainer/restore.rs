//! A rank's state from the gang's shards, or from the model folder.

use std::path::{Path, PathBuf};

use robust_proto::v1::{Restore, SnapshotReply};
use safetensors::{Dtype, SafeTensors};
use xxhash_rust::xxh3::xxh3_64;

use super::snapshot::{FORMAT, TENSORS, VERSION};
use super::state::TrainState;
use crate::model::adam::AdamError;
use crate::model::flat::WrongLength;
use crate::model::hf::{self, HfError};

/// Why a state could not be restored; the rank's state is then undefined and must be restored
/// again before anything else.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A shard's file could not be read.
    #[error("reading shard {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A shard's bytes are not those that were written.
    #[error("shard {path} is corrupt: {why}")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What differs.
        why: String,
    },
    /// The shards do not make up one state of this model.
    #[error("the shards do not fit together: {0}")]
    Mismatch(String),
    /// The initial weights are unusable.
    #[error(transparent)]
    Initial(#[from] HfError),
    /// A size differs.
    #[error(transparent)]
    Length(#[from] WrongLength),
    /// A size differs.
    #[error(transparent)]
    Adam(#[from] AdamError),
}

/// Puts the state of `request` in place.
pub(super) fn restore(
    state: &mut TrainState,
    request: &Restore,
    folder: &Path,
) -> Result<(), RestoreError> {
    if request.shards.is_empty() {
        if request.step > 0 {
            tracing::warn!(
                step = request.step,
                "no snapshot: going on from the initial weights"
            );
        }
        let initial = hf::load(folder)?;
        state
            .model
            .params_mut()
            .copy_from(initial.params().tensor())?;
        state.reset_optimiser();
    } else {
        from_shards(state, request)?;
    }
    state.step = request.step;
    Ok(())
}

/// The flat buffers as far as the shards have filled them.
#[derive(Default)]
struct Gathered {
    buffers: [Vec<u8>; TENSORS.len()],
    adam_step: Option<u64>,
}

fn from_shards(state: &mut TrainState, request: &Restore) -> Result<(), RestoreError> {
    let mut gathered = Gathered::default();
    for shard in &request.shards {
        gathered.add(shard, request.step, state.model.params().len())?;
    }
    let [params, m, v] = &gathered.buffers;
    state.model.params_mut().copy_from_bytes(params)?;
    state.adam.restore(gathered.adam_step.unwrap_or(0), m, v)?;
    Ok(())
}

impl Gathered {
    fn add(
        &mut self,
        shard: &SnapshotReply,
        step: u64,
        elements: usize,
    ) -> Result<(), RestoreError> {
        let path = PathBuf::from(&shard.path);
        let image = std::fs::read(&path).map_err(|source| RestoreError::Read {
            path: path.clone(),
            source,
        })?;
        let corrupt = |why: String| RestoreError::Corrupt {
            path: path.clone(),
            why,
        };
        // A slot may be longer than its image if an earlier layout was larger.
        let image = usize::try_from(shard.bytes)
            .ok()
            .and_then(|bytes| image.get(..bytes));
        let Some(image) = image else {
            return Err(corrupt(format!("it is shorter than {} bytes", shard.bytes)));
        };
        let xxh3 = xxh3_64(image);
        if xxh3 != shard.xxh3 {
            return Err(corrupt(format!(
                "xxh3 is {xxh3:016x}, recorded was {:016x}",
                shard.xxh3
            )));
        }
        let (_, header) = SafeTensors::read_metadata(image).map_err(|e| corrupt(e.to_string()))?;
        let tensors = SafeTensors::deserialize(image).map_err(|e| corrupt(e.to_string()))?;
        let metadata = header.metadata().clone().unwrap_or_default();
        let text = |key: &str| metadata.get(key).map_or("", String::as_str);
        let number = |key: &str| {
            text(key)
                .parse::<u64>()
                .map_err(|_| corrupt(format!("metadata {key} is no number")))
        };
        if (text("format"), text("version")) != (FORMAT, VERSION) {
            let (format, version) = (text("format"), text("version"));
            return Err(corrupt(format!(
                "format {format:?} version {version:?} is not known"
            )));
        }
        let mismatch = |why: String| Err(RestoreError::Mismatch(why));
        if number("step")? != step {
            return mismatch(format!("{} is of step {}", path.display(), number("step")?));
        }
        if number("elements")? != elements as u64 {
            let found = number("elements")?;
            return mismatch(format!("{found} elements, the model has {elements}"));
        }
        if number("first")? * 4 != self.buffers[0].len() as u64 {
            return mismatch(format!(
                "{} does not follow the shard before it",
                path.display()
            ));
        }
        let adam_step = number("adam_step")?;
        if self
            .adam_step
            .replace(adam_step)
            .is_some_and(|before| before != adam_step)
        {
            return mismatch("the shards' optimisers are at different steps".into());
        }
        for (name, buffer) in TENSORS.into_iter().zip(&mut self.buffers) {
            let tensor = tensors.tensor(name).map_err(|e| corrupt(e.to_string()))?;
            if tensor.dtype() != Dtype::F32 {
                return Err(corrupt(format!("{name} is {:?}", tensor.dtype())));
            }
            buffer.extend_from_slice(tensor.data());
        }
        Ok(())
    }
}
