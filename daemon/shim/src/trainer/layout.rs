//! Where the tensors of a state or of a version lie, one after the other.

use std::collections::BTreeSet;

use safetensors::Dtype;

use super::words::{Placed, Tensor};

/// Tensors that have no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Its numbers are of a kind that is not known.
    #[error(
        "tensor `{name}` has dtype `{dtype}`; those that can be kept are F64, F32, F16, BF16, I64, I32, \
         I16, I8, U8 and BOOL"
    )]
    Dtype {
        /// The tensor.
        name: String,
        /// Its type.
        dtype: String,
    },
    /// Two tensors have one name.
    #[error("tensor `{0}` occurs twice")]
    Twice(String),
    /// No memory has so many bytes.
    #[error("tensor `{0}` is larger than any memory")]
    Size(String),
}

/// Gives each tensor its place, in the order given, without gaps.
pub fn place(tensors: &[Tensor]) -> Result<Vec<Placed>, LayoutError> {
    let (mut at, mut names) = (0u64, BTreeSet::new());
    let mut placed = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let name = || tensor.name.clone();
        if !names.insert(&tensor.name) {
            return Err(LayoutError::Twice(name()));
        }
        let bits = bits(&tensor.dtype).ok_or_else(|| LayoutError::Dtype {
            name: name(),
            dtype: tensor.dtype.clone(),
        })?;
        let elements = tensor
            .shape
            .iter()
            .try_fold(1u64, |n, size| n.checked_mul(*size));
        let bytes = elements.and_then(|n| n.checked_mul(bits / 8));
        let end = bytes.and_then(|bytes| at.checked_add(bytes));
        let end = end.ok_or_else(|| LayoutError::Size(name()))?;
        placed.push(Placed {
            name: name(),
            dtype: tensor.dtype.clone(),
            shape: tensor.shape.clone(),
            start: at,
            end,
        });
        at = end;
    }
    Ok(placed)
}

/// Bytes of all of them.
pub fn bytes(placed: &[Placed]) -> u64 {
    placed.last().map_or(0, |last| last.end)
}

fn bits(dtype: &str) -> Option<u64> {
    let known = [
        Dtype::F64,
        Dtype::F32,
        Dtype::F16,
        Dtype::BF16,
        Dtype::I64,
        Dtype::I32,
        Dtype::I16,
        Dtype::I8,
        Dtype::U8,
        Dtype::BOOL,
    ];
    let found = known
        .into_iter()
        .find(|known| format!("{known:?}") == dtype);
    found.map(|dtype| dtype.bitsize() as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn tensor(name: &str, dtype: &str, shape: &[u64]) -> Tensor {
        Tensor {
            name: name.to_owned(),
            dtype: dtype.to_owned(),
            shape: shape.to_vec(),
        }
    }

    #[test]
    fn tensors_lie_one_after_the_other_whatever_their_types() {
        let tensors = [
            tensor("a", "BF16", &[2, 3]),
            tensor("step", "I64", &[]),
            tensor("none", "F32", &[0, 7]),
            tensor("mask", "BOOL", &[5]),
        ];
        let placed = place(&tensors).unwrap();
        let ends: Vec<(u64, u64)> = placed.iter().map(|p| (p.start, p.end)).collect();
        assert_eq!(ends, [(0, 12), (12, 20), (20, 20), (20, 25)]);
        assert_eq!(bytes(&placed), 25);
        assert_eq!(bytes(&[]), 0);
    }

    #[test]
    fn what_has_no_place_is_refused_by_its_name() {
        let said = |tensors: &[Tensor]| place(tensors).unwrap_err().to_string();
        let complex = said(&[tensor("a", "C64", &[1])]);
        assert!(
            complex.starts_with("tensor `a` has dtype `C64`"),
            "{complex}"
        );
        let one = tensor("a", "F32", &[1]);
        assert_eq!(said(&[one.clone(), one]), "tensor `a` occurs twice");
        let large = said(&[tensor("a", "F32", &[u64::MAX, 2])]);
        assert_eq!(large, "tensor `a` is larger than any memory");
    }
}
