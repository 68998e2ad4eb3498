//! A rank's share of a batch as a safetensors file.
//!
//! | tensor | dtype, shape | what |
//! | --- | --- | --- |
//! | `ids` | I64 `[n, t]` | prompt, turns and tool results; 0 after the end |
//! | `lengths` | I64 `[n]` | tokens of each sample |
//! | `mask` | F32 `[n, t - 1]` | 1 where the model made the next token: the tokens that are trained on |
//! | `rollout_logprobs` | F32 `[n, t - 1]` | of the next token as the engine that made it said; 0 elsewhere |
//! | `advantages`, `rewards` | F32 `[n]` | of each sample |
//! | `trajectories` | I64 `[n]` | its key |
//!
//! `n` is the rank's samples and `t` the longest one's tokens.

use std::path::Path;

use robust_proto::v1::Sample;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError};

/// Writes the samples to `path`.
pub fn write(samples: &[Sample], path: &Path) -> Result<(), SafeTensorError> {
    let (n, t) = (samples.len(), longest(samples));
    let next = t.saturating_sub(1);
    let ids = padded(samples, t, |s| {
        s.ids.iter().map(|id| i64::from(*id)).collect()
    });
    let lengths = samples.iter().map(|s| s.ids.len() as i64);
    let trajectories = samples.iter().map(|s| s.trajectory as i64);
    let mask = padded(samples, next, |s| {
        let after_first = s.trainable.iter().skip(1);
        after_first.map(|t| f32::from(u8::from(*t))).collect()
    });
    let logprobs = padded(samples, next, |s| {
        s.rollout_logprobs.iter().skip(1).copied().collect()
    });
    let advantages = samples.iter().map(|s| s.advantage as f32);
    let rewards = samples.iter().map(|s| s.reward as f32);
    let i64s = |values: &mut dyn Iterator<Item = i64>| -> Vec<u8> {
        values.flat_map(i64::to_le_bytes).collect()
    };
    let f32s = |values: &mut dyn Iterator<Item = f32>| -> Vec<u8> {
        values.flat_map(f32::to_le_bytes).collect()
    };
    let tensors = [
        ("ids", Dtype::I64, vec![n, t], i64s(&mut ids.into_iter())),
        ("lengths", Dtype::I64, vec![n], i64s(&mut { lengths })),
        (
            "trajectories",
            Dtype::I64,
            vec![n],
            i64s(&mut { trajectories }),
        ),
        (
            "mask",
            Dtype::F32,
            vec![n, next],
            f32s(&mut mask.into_iter()),
        ),
        (
            "rollout_logprobs",
            Dtype::F32,
            vec![n, next],
            f32s(&mut logprobs.into_iter()),
        ),
        ("advantages", Dtype::F32, vec![n], f32s(&mut { advantages })),
        ("rewards", Dtype::F32, vec![n], f32s(&mut { rewards })),
    ];
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        let view = TensorView::new(*dtype, shape.clone(), bytes)?;
        Ok((*name, view))
    });
    let views = views.collect::<Result<Vec<_>, SafeTensorError>>()?;
    safetensors::serialize_to_file(views, None, path)
}

fn longest(samples: &[Sample]) -> usize {
    samples.iter().map(|s| s.ids.len()).max().unwrap_or(0)
}

/// The rows one after the other, each as long as the longest may be.
fn padded<T: Clone + Default>(
    samples: &[Sample],
    length: usize,
    row: impl Fn(&Sample) -> Vec<T>,
) -> Vec<T> {
    let rows = samples.iter().flat_map(|sample| {
        let mut row = row(sample);
        row.resize(length, T::default());
        row
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use safetensors::SafeTensors;

    #[test]
    fn samples_are_padded_and_what_is_about_the_next_token_begins_with_the_second() {
        let sample = |ids: &[u32], trajectory| Sample {
            ids: ids.to_vec(),
            trainable: ids.iter().map(|id| *id > 5).collect(),
            rollout_logprobs: ids.iter().map(|id| -(*id as f32)).collect(),
            advantage: 0.5,
            reward: 1.0,
            trajectory,
            ..Sample::default()
        };
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("batch");
        write(&[sample(&[1, 6, 7], 4), sample(&[2, 8], 9)], &path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let i64s = |name| -> Vec<i64> {
            let data = file.tensor(name).unwrap().data().to_vec();
            data.chunks(8)
                .map(|b| i64::from_le_bytes(b.try_into().unwrap()))
                .collect()
        };
        let f32s = |name| -> Vec<f32> {
            let data = file.tensor(name).unwrap().data().to_vec();
            data.chunks(4)
                .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
                .collect()
        };
        assert_eq!(file.tensor("ids").unwrap().shape(), [2, 3]);
        assert_eq!(i64s("ids"), [1, 6, 7, 2, 8, 0]);
        assert_eq!(
            (i64s("lengths"), i64s("trajectories")),
            (vec![3, 2], vec![4, 9])
        );
        assert_eq!(file.tensor("mask").unwrap().shape(), [2, 2]);
        assert_eq!(f32s("mask"), [1.0, 1.0, 1.0, 0.0]);
        assert_eq!(f32s("rollout_logprobs"), [-6.0, -7.0, -8.0, 0.0]);
        assert_eq!(
            (f32s("advantages"), f32s("rewards")),
            (vec![0.5; 2], vec![1.0; 2])
        );
    }
}
