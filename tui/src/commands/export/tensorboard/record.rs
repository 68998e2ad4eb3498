//! Records of an event file, as `tensorflow/core/lib/io/record_writer.h` has them:
//!
//! ```text
//!  length u64 │ masked CRC-32C of the length u32 │ message │ masked CRC-32C of the message u32    little-endian
//! ```
use prost::Message;

/// What a checksum that lies beside its data is shifted by (`tensorflow/core/lib/hash/crc32c.h`, `kMaskDelta`).
const MASK_DELTA: u32 = 0xa282_ead8;

/// Puts a message behind those that are there.
pub fn put(out: &mut Vec<u8>, message: &impl Message) {
    frame(out, &message.encode_to_vec());
}

/// The same of a message in bytes.
pub fn frame(out: &mut Vec<u8>, message: &[u8]) {
    let length = (message.len() as u64).to_le_bytes();
    out.extend_from_slice(&length);
    out.extend_from_slice(&masked(&length).to_le_bytes());
    out.extend_from_slice(message);
    out.extend_from_slice(&masked(message).to_le_bytes());
}

/// A checksum of bytes that may have checksums in them.
pub fn masked(bytes: &[u8]) -> u32 {
    let sum = crc_fast::crc32_iscsi(bytes);
    sum.rotate_right(15).wrapping_add(MASK_DELTA)
}
