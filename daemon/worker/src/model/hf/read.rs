//! Weights from files into a model's flat buffer.
//!
//! They are read tensor by tensor to where they belong, and converted in small pieces. A mapping would
//! not be shorter: pages that were touched count as this process's memory, and a file that is cut short
//! meanwhile would end it with SIGBUS instead of an error.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use robust_ckpt::{StoredTensor, WeightFiles};
use safetensors::Dtype;

use super::HfError;
use crate::model::flat::TensorSpec;
use crate::model::qwen3::Qwen3;

/// Halves that are converted at once.
const PIECE: usize = 1 << 19;

/// What turns the two bytes of a half into a float32.
type Widen = fn(u16) -> f32;

/// Reads every tensor of the model. Names, shapes and types are looked at first.
pub(super) fn weights(model: &mut Qwen3, folder: &Path) -> Result<(), HfError> {
    let files = WeightFiles::find(folder)?;
    let tied = model.config().tie_word_embeddings;
    let layout = model.params().layout().to_vec();
    let tensors = fitting(&files, &layout, tied)?;
    let mut open = BTreeMap::new();
    let flat = model.params_mut().as_bytes_mut();
    for (spec, tensor) in layout.iter().zip(&tensors) {
        let to = &mut flat[spec.offset * 4..(spec.offset + spec.len) * 4];
        let reading = |source| HfError::Io {
            doing: "reading",
            path: tensor.file.clone(),
            source,
        };
        let file = opened(&mut open, &tensor.file).map_err(reading)?;
        match widening(tensor.dtype) {
            None => file.read_exact_at(to, tensor.at),
            Some(widen) => read_halves(file, tensor.at, to, widen),
        }
        .map_err(reading)?;
    }
    Ok(())
}

/// The stored tensor of each of the model's, in the layout's order.
fn fitting(
    files: &WeightFiles,
    layout: &[TensorSpec],
    tied: bool,
) -> Result<Vec<StoredTensor>, HfError> {
    let mut stored = files.tensors()?;
    let first = files.files.first().cloned().unwrap_or_default();
    let all = files.index.clone().unwrap_or(first);
    let bad = |path: &Path, name: &str, why: String| HfError::Tensor {
        path: path.into(),
        name: name.into(),
        why,
    };
    let mut tensors = Vec::with_capacity(layout.len());
    for spec in layout {
        let tensor = stored.remove(&spec.name);
        let tensor = tensor.ok_or_else(|| bad(&all, &spec.name, "missing".into()))?;
        check(spec, &tensor).map_err(|why| bad(&tensor.file, &spec.name, why))?;
        tensors.push(tensor);
    }
    if tied {
        // Some writers store the tied output layer all the same.
        stored.remove("lm_head.weight");
    }
    match stored.first_key_value() {
        Some((name, tensor)) => {
            let why = "not part of this architecture".into();
            Err(bad(&tensor.file, name, why))
        }
        None => Ok(tensors),
    }
}

fn check(spec: &TensorSpec, tensor: &StoredTensor) -> Result<(), String> {
    let shape = tensor.shape.iter().map(|&size| size as i64);
    if shape.ne(spec.shape.iter().copied()) {
        let (found, expected) = (&tensor.shape, &spec.shape);
        return Err(format!(
            "has shape {found:?}, config.json says {expected:?}"
        ));
    }
    let element = match tensor.dtype {
        Dtype::F32 => 4,
        Dtype::BF16 | Dtype::F16 => 2,
        other => return Err(format!("has type {other:?}, expected F32, BF16 or F16")),
    };
    let (found, expected) = (tensor.bytes, spec.len as u64 * element);
    if found != expected {
        return Err(format!("has {found} bytes, its shape takes {expected}"));
    }
    Ok(())
}

/// How elements of a checked type become float32; none if they are.
fn widening(dtype: Dtype) -> Option<Widen> {
    match dtype {
        Dtype::BF16 => Some(|half| f32::from_bits(u32::from(half) << 16)),
        Dtype::F16 => Some(f16_to_f32),
        _ => None,
    }
}

fn opened<'a>(open: &'a mut BTreeMap<PathBuf, File>, path: &Path) -> std::io::Result<&'a mut File> {
    if !open.contains_key(path) {
        open.insert(path.to_owned(), File::open(path)?);
    }
    open.get_mut(path)
        .ok_or(std::io::ErrorKind::NotFound.into())
}

fn read_halves(file: &File, mut at: u64, to: &mut [u8], widen: Widen) -> std::io::Result<()> {
    let mut piece = vec![0; (to.len() / 2).min(PIECE * 2)];
    for to in to.chunks_mut(PIECE * 4) {
        let halves = &mut piece[..to.len() / 2];
        file.read_exact_at(halves, at)?;
        at += halves.len() as u64;
        for (half, single) in halves
            .as_chunks::<2>()
            .0
            .iter()
            .zip(to.as_chunks_mut::<4>().0)
        {
            *single = widen(u16::from_le_bytes(*half)).to_le_bytes();
        }
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
