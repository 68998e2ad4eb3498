//! The header of a safetensors file, without its tensors.
use crate::CkptError;
use safetensors::tensor::Metadata;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Larger headers are no model's.
const LIMIT: u64 = 256 << 20;

/// What a file's header says.
pub struct Header {
    /// Names, types, shapes and places of the tensors, from [`Self::data`] on.
    pub tensors: Metadata,
    /// Where the tensors' bytes begin in the file.
    pub data: u64,
    /// Length of the file.
    pub bytes: u64,
}

/// Reads it; memory does not grow with the tensors.
pub fn header(path: &Path) -> Result<Header, CkptError> {
    let reading = || CkptError::io("read", path);
    let mut file = File::open(path).map_err(reading())?;
    let bytes = file.metadata().map_err(reading())?.len();
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(reading())?;
    let length = u64::from_le_bytes(length);
    if length > LIMIT.min(bytes) {
        return Err(CkptError::bad(path, "it is no safetensors file"));
    }
    let mut text = vec![0; length as usize];
    file.read_exact(&mut text).map_err(reading())?;
    let tensors = serde_json::from_slice(&text).map_err(|e| CkptError::bad(path, e.to_string()))?;
    Ok(Header {
        tensors,
        data: 8 + length,
        bytes,
    })
}
