//! Bytes of a buffer that are on their way to a peer.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use super::{Buffer, Place};
use crate::error::BufferError;

/// Some bytes of a buffer of this host's, lent to a peer from when its read is answered until the road is
/// through with them: a `&mut` to what UCX sends, or what is being sealed, would be undefined behaviour,
/// so nobody gets one meanwhile.
pub(crate) struct Served {
    buffer: Arc<Buffer>,
    range: Range<usize>,
}

impl Served {
    /// Refused while somebody here writes to these bytes or fetches into them, and for bytes on a device.
    pub fn of(buffer: &Arc<Buffer>, range: Range<usize>) -> Result<Served, BufferError> {
        if let Place::Device(_) = buffer.place {
            return Err(BufferError::OnDevice);
        }
        buffer.check(&range)?;
        buffer.loans().share(&range)?;
        Ok(Served {
            buffer: Arc::clone(buffer),
            range,
        })
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Where they lie in the buffer.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// Which they are of.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    /// All of them, of which nothing changes as long as this lives.
    pub fn bytes(&self) -> &[u8] {
        let Place::Host(mapping) = &self.buffer.place else {
            return &[];
        };
        let start = mapping.as_ptr().wrapping_add(self.range.start);
        // SAFETY: initialised bytes of the mapping, which lives as long as the buffer, in bounds; the loan
        // keeps writers and fetches away from them until this is dropped.
        unsafe { std::slice::from_raw_parts(start, self.range.len()) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.buffer.loans().unshare(&self.range);
    }
}
