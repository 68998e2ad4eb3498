//! The header of a safetensors file for tensors that lie as a manifest says.

use robust_shared::weights::TensorSpec;
use serde_json::{Map, Value, json};

/// Tensors begin at a multiple of this, so that they can be mapped and pinned in place.
const ALIGNMENT: usize = 4096;
/// The length of the header comes first.
const LENGTH_BYTES: usize = 8;

/// The bytes before the tensors: the header's length (u64, little endian) and its JSON, padded with
/// blanks as the format allows, together a multiple of a page.
pub(super) fn of(tensors: &[TensorSpec]) -> Vec<u8> {
    let mut header = Map::new();
    // Hugging Face's loaders refuse a file that does not name its framework.
    header.insert("__metadata__".to_owned(), json!({"format": "pt"}));
    for tensor in tensors {
        let place = [tensor.offset, tensor.offset + tensor.bytes];
        let entry = json!({
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": place,
        });
        header.insert(tensor.name.clone(), entry);
    }
    let mut json = Value::Object(header).to_string().into_bytes();
    let whole = (LENGTH_BYTES + json.len()).next_multiple_of(ALIGNMENT);
    json.resize(whole - LENGTH_BYTES, b' ');
    let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut json);
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn tensors_begin_at_a_page_and_are_found_by_name() {
        let tensor = TensorSpec {
            name: "model.norm.weight".to_owned(),
            dtype: "F32".to_owned(),
            shape: vec![2, 3],
            offset: 0,
            bytes: 24,
        };
        let mut file = of(&[tensor]);
        assert_eq!(file.len() % ALIGNMENT, 0);
        file.extend_from_slice(&[0; 24]);
        let read = safetensors::SafeTensors::deserialize(&file).unwrap();
        assert_eq!(read.tensor("model.norm.weight").unwrap().shape(), [2, 3]);
    }
}
