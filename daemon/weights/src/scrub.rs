//! Reading again what was verified: memory fails after bytes came, too.
//!
//! ```text
//!  every chunk verified ──► read again ──► swap, serve ──► read again, every so often ──► ..
//!                              │ one differs                  │ one differs
//!                              ▼                              ▼
//!                     the pull fails, nothing       whoever serves it says so
//!                     of it is kept
//! ```
//! A chunk at a time, with a rest after each as the caller's [`Duty`] says, so that whoever computes with
//! the bytes hardly notices. What is served may become another version under way, and its buffer be
//! written: a chunk is read under a lock that `Slots::open` takes before that.
use std::sync::Arc;

use robust_shared::ids::WeightVersion;
use robust_shared::weights::Manifest;
use robust_transport::{Buffer, BufferError, Duty};

use crate::slots::Slots;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scrubbed {
    /// The version that is served.
    pub version: WeightVersion,
    /// Chunks whose bytes are not the published ones any more.
    pub wrong: u64,
    /// Chunks of the version.
    pub chunks: u64,
}

impl Slots {
    /// Reads all of what is served; none when nothing is, or when it became another version meanwhile.
    pub fn scrub(&self, duty: &mut Duty) -> Option<Scrubbed> {
        let served = self.served()?;
        let (manifest, mut wrong) = (served.manifest, 0);
        for chunk in 0..manifest.chunks() {
            let differs = self.with_served(served.version, |buffer| {
                // Of one that cannot be read now nothing is known.
                differs(&manifest, buffer, chunk).unwrap_or(false)
            })?;
            wrong += u64::from(differs);
            duty.rest_fully();
        }
        Some(Scrubbed {
            version: served.version,
            wrong,
            chunks: manifest.chunks(),
        })
    }
}

/// How many chunks of a whole version in a buffer that nobody writes are not the published ones.
pub fn wrong_chunks(
    manifest: &Arc<Manifest>,
    buffer: &Buffer,
    duty: &mut Duty,
) -> Result<u64, BufferError> {
    let mut wrong = 0;
    for chunk in 0..manifest.chunks() {
        wrong += u64::from(differs(manifest, buffer, chunk)?);
        duty.rest_fully();
    }
    Ok(wrong)
}

fn differs(manifest: &Manifest, buffer: &Buffer, chunk: u64) -> Result<bool, BufferError> {
    let Some(range) = manifest.chunk_range(chunk) else {
        return Ok(false);
    };
    let length = range.end - range.start;
    let digest = buffer.digest(range.start as usize..range.end as usize)?;
    Ok(manifest.verify_digest(chunk, length, || digest).is_err())
}
