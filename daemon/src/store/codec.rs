//! CBOR: self-describing, so that a field can be added with a default, and true to NaN, which a
//! diverged step's figures contain.
use super::error::StoreError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// To bytes.
pub fn encode<T: Serialize>(what: &'static str, value: &T) -> Result<Vec<u8>, StoreError> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).map_err(|e| StoreError::Encode {
        what,
        detail: e.to_string(),
    })?;
    Ok(bytes)
}

/// From bytes; `key` names them in the error.
pub fn decode<T: DeserializeOwned>(path: &Path, key: &[u8], bytes: &[u8]) -> Result<T, StoreError> {
    ciborium::from_reader(bytes).map_err(|e| undecodable(path, key, &e))
}

/// The bytes under a key are not what the schema says.
pub fn undecodable(path: &Path, key: &[u8], error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Corrupt {
        path: path.to_owned(),
        detail: format!("value of {}: {error}", key.escape_ascii()),
    }
}
