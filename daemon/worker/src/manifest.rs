//! A model's layout in a manifest's terms.

use robust_shared::job::Dtype;
use robust_shared::weights::TensorSpec;

use crate::model::flat;

/// A float32 model's layout as manifests describe it.
pub fn tensor_specs(layout: &[flat::TensorSpec]) -> Vec<TensorSpec> {
    tensor_specs_of(layout, Dtype::Float32)
}

/// The same of a model whose versions are of these numbers.
pub fn tensor_specs_of(layout: &[flat::TensorSpec], dtype: Dtype) -> Vec<TensorSpec> {
    let (name, size) = match dtype {
        Dtype::Float32 => ("F32", 4),
        Dtype::Bfloat16 => ("BF16", 2),
    };
    let spec = |tensor: &flat::TensorSpec| TensorSpec {
        name: tensor.name.clone(),
        dtype: name.to_owned(),
        shape: tensor.shape.iter().map(|&size| size as u64).collect(),
        offset: tensor.offset as u64 * size,
        bytes: tensor.len as u64 * size,
    };
    layout.iter().map(spec).collect()
}
