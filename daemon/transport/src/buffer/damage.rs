//! Bytes that change by themselves, as in memory that fails: for drills.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, Ordering};

use super::{Buffer, OnDevice, Place};
use crate::error::BufferError;

/// The lowest bit: of a little-endian float the least that can change.
const BIT: u8 = 1;

impl Buffer {
    /// Flips a bit of the byte at `offset`, past all loans and fetches: whoever holds these bytes is
    /// not to know, as with memory that fails. Only its digest tells.
    pub fn damage(&self, offset: usize) -> Result<(), BufferError> {
        self.range(offset, 1)?;
        match &self.place {
            Place::Host(mapping) => {
                // SAFETY: in bounds of the mapping, which lives as long as the buffer. That readers
                // may hold the byte is what the drill is about: they read numbers of which any bits
                // are valid, and the write is a single atomic one.
                let byte = unsafe { AtomicU8::from_ptr(mapping.as_ptr().add(offset)) };
                byte.fetch_xor(BIT, Ordering::Relaxed);
                Ok(())
            }
            Place::Device(OnDevice { memory, staging }) => {
                let mut byte = [0];
                staging.each(memory, offset..offset + 1, |_, bytes| {
                    byte.copy_from_slice(bytes);
                })?;
                Ok(staging.write(memory, offset, &[byte[0] ^ BIT])?)
            }
        }
    }
}
