//! A rank's state from the gang's shards, or from the model folder.
//!
//! All shards are looked at before the first byte of the state changes; then each is read straight into
//! the place it belongs to.

use std::path::{Path, PathBuf};

use robust_ckpt::CkptError;
use robust_ckpt::image::{FORMAT, TENSORS, VERSION};
use robust_ckpt::slot::{Image, Taken};
use robust_proto::v1::{Restore, SnapshotReply};
use robust_shared::ids::{Generation, Step};
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;

use super::state::TrainState;
use crate::model::flat::WrongLength;
use crate::model::hf::{self, HfError};

/// Why a state could not be restored; the rank's state is then undefined and must be restored
/// again before anything else.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// A shard cannot be read, or its bytes are not those that were written.
    #[error("shard {0}")]
    Shard(#[from] CkptError),
    /// A shard is not what this build can restore.
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
        hf::load_into(&mut state.model, folder)?;
        state.reset_optimiser();
    } else {
        from_shards(state, request)?;
    }
    state.step = request.step;
    Ok(())
}

fn from_shards(state: &mut TrainState, request: &Restore) -> Result<(), RestoreError> {
    let elements = state.model.params().len();
    let mut looked_at = LookedAt::default();
    for shard in &request.shards {
        looked_at.add(shard, request.step, elements)?;
    }
    if looked_at.end != elements {
        let (found, expected) = (looked_at.end * 4, elements * 4);
        let why = format!("they have {found} bytes of weights, the model {expected}");
        return Err(RestoreError::Mismatch(why));
    }
    let [params, m, v] = state.memory_mut();
    for part in looked_at.parts {
        let bytes = part.first * 4..(part.first + part.count) * 4;
        let [mut params, mut m, mut v] = [
            &mut params[bytes.clone()],
            &mut m[bytes.clone()],
            &mut v[bytes],
        ];
        part.image
            .restore(part.data, &mut [&mut params, &mut m, &mut v], part.xxh3)?;
    }
    state
        .adam
        .set_step_count(looked_at.adam_step.unwrap_or_default());
    Ok(())
}

/// One shard and its place in the flat buffers, in elements.
struct Part {
    image: Image,
    /// Where the tensors begin in the image.
    data: u64,
    first: usize,
    count: usize,
    xxh3: Option<u64>,
}

/// The shards so far.
#[derive(Default)]
struct LookedAt {
    parts: Vec<Part>,
    /// Elements that they have together.
    end: usize,
    adam_step: Option<u64>,
}

impl LookedAt {
    fn add(
        &mut self,
        shard: &SnapshotReply,
        step: u64,
        elements: usize,
    ) -> Result<(), RestoreError> {
        let taken = Taken {
            step: Step(shard.step),
            generation: Generation(shard.generation),
            bytes: shard.bytes,
        };
        let image = Image::open(Path::new(&shard.path), taken)?;
        let header = image.header()?;
        let corrupt = |why: String| RestoreError::Corrupt {
            path: image.path().to_owned(),
            why,
        };
        let mismatch = |why: String| Err(RestoreError::Mismatch(why));
        let metadata = header.tensors.metadata().clone().unwrap_or_default();
        let text = |key: &str| metadata.get(key).map_or("", String::as_str);
        let number = |key: &str| {
            text(key)
                .parse::<u64>()
                .map_err(|_| corrupt(format!("metadata {key} is no number")))
        };
        let version = number("version")?;
        if text("format") != FORMAT || !(1..=VERSION.into()).contains(&version) {
            let why = format!("format {:?} version {version} is not known", text("format"));
            return Err(corrupt(why));
        }
        // What version 1 says in the image, the message about it says now.
        let of = if version == 1 {
            number("step")?
        } else {
            shard.step
        };
        if of != step {
            return mismatch(format!("{} is of step {of}", image.path().display()));
        }
        let found = number("elements")?;
        if found != elements as u64 {
            return mismatch(format!("{found} elements, the model has {elements}"));
        }
        if number("first")? != self.end as u64 {
            let path = image.path().display();
            return mismatch(format!("{path} does not follow the shard before it"));
        }
        let adam_step = match (version, shard.adam_step) {
            (1, _) => number("adam_step")?,
            (_, Some(step)) => step,
            _ => return Err(corrupt("the optimiser's step is not known".to_owned())),
        };
        let before = self.adam_step.replace(adam_step);
        if before.is_some_and(|before| before != adam_step) {
            return mismatch("the shards' optimisers are at different steps".into());
        }
        let infos = TENSORS.map(|name| header.tensors.info(name));
        let count = tensors(infos).ok_or_else(|| corrupt("its tensors are others".to_owned()))?;
        let first = self.end;
        self.end += count;
        self.parts.push(Part {
            image,
            data: header.data,
            first,
            count,
            xxh3: shard.xxh3,
        });
        Ok(())
    }
}

/// Elements of each of the tensors, if they are alike and lie one after the other.
fn tensors(infos: [Option<&TensorInfo>; TENSORS.len()]) -> Option<usize> {
    let bytes = infos[0]?.data_offsets.1;
    for (index, info) in infos.into_iter().enumerate() {
        let info = info?;
        let offsets = (index * bytes, (index + 1) * bytes);
        if info.dtype != Dtype::F32 || info.data_offsets != offsets {
            return None;
        }
    }
    Some(bytes / 4)
}
