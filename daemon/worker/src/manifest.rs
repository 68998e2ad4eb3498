//! A model's layout in a manifest's terms.

use robust_shared::weights::TensorSpec;

use crate::model::flat;

/// A model's layout as manifests describe it.
pub fn tensor_specs(layout: &[flat::TensorSpec]) -> Vec<TensorSpec> {
    let spec = |tensor: &flat::TensorSpec| TensorSpec {
        name: tensor.name.clone(),
        dtype: "F32".to_owned(),
        shape: tensor.shape.iter().map(|&size| size as u64).collect(),
        offset: tensor.offset as u64 * 4,
        bytes: tensor.len as u64 * 4,
    };
    layout.iter().map(spec).collect()
}
