//! A rank's snapshot in shared memory: one file, written in place, sealed.
//!
//! ```text
//!  page 0: the seal   page 1 and on: the image (safetensors: a header page, `params`, `adam_m`, `adam_v`)
//!
//!  writer  sequence odd ─► one copy of the image ─► step, generation, bytes ─► sequence even
//!  reader  sequence even and what was asked for ─► read on ─► the seal is still the same ─► it counts
//! ```
//! The trainer pays for the copy alone ([`Slot::write`]): the file was allocated, mapped and touched
//! before, and no digest is taken. Whoever reads it in the background ([`Image`]) hashes on the way and
//! drops what it read when the seal changed meanwhile. A writer killed in the middle leaves an odd
//! sequence: nobody takes that for a snapshot.
//!
//! Slots are named files in `/dev/shm` and not memfds: a memfd is gone when the daemon and the trainer
//! that hold it are both killed, and a committed, published step must come back (I-4). A named file ends
//! with the machine only.
mod image;
mod map;
mod memory;
#[cfg(test)]
mod tests;
mod write;

pub use image::{Image, held};
pub use memory::{RestoreMemory, SnapshotMemory};
pub use write::{Slot, Writing};

use robust_shared::ids::{Generation, Step};
use std::fmt;
use xxhash_rust::xxh3::xxh3_64;

/// Where the image begins in a slot: aligned for direct writes.
pub const PAGE: usize = 4096;
/// The first word of a slot. Read as a safetensors header's length it would be absurd, so that one look
/// tells a slot from a plain image.
const MAGIC: u64 = u64::from_le_bytes(*b"RBSTSLOT");
/// The seal's layout.
const VERSION: u64 = 1;
/// Words of the seal: magic, version, sequence, step, generation, adam_step, bytes, check.
const WORDS: usize = 8;
const SEQUENCE: usize = 2;
const GENERATION: usize = 4;

/// What a snapshot is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The step whose result it is.
    pub step: Step,
    /// The gang that took it.
    pub generation: Generation,
    /// Length of the image.
    pub bytes: u64,
}

/// What a complete slot says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Counts writes; the same number twice is the same content.
    pub sequence: u64,
    /// What the image is of.
    pub taken: Taken,
    /// Steps that the optimiser took: the one number of its state that is no tensor.
    pub adam_step: u64,
}

/// What the first words of a file are.
enum Words {
    /// No slot: a plain image.
    Plain,
    /// A slot that holds no snapshot now, with the reason.
    Unsealed(&'static str),
    /// A slot that holds one.
    Sealed(Seal),
}

impl Seal {
    fn words(&self) -> [u64; WORDS] {
        let Taken {
            step,
            generation,
            bytes,
        } = self.taken;
        let mut words = [
            MAGIC,
            VERSION,
            self.sequence,
            step.0,
            generation.0,
            self.adam_step,
            bytes,
            0,
        ];
        words[WORDS - 1] = check(&words);
        words
    }

    fn read(words: [u64; WORDS]) -> Words {
        let [
            magic,
            version,
            sequence,
            step,
            generation,
            adam_step,
            bytes,
            found,
        ] = words;
        match () {
            () if magic == 0 => Words::Unsealed("nothing was written yet"),
            () if magic != MAGIC => Words::Plain,
            () if version != VERSION => Words::Unsealed("a newer build wrote it"),
            () if !sequence.is_multiple_of(2) => Words::Unsealed("it is being written"),
            () if found != check(&words) => Words::Unsealed("its seal is broken"),
            () => Words::Sealed(Self {
                sequence,
                taken: Taken {
                    step: Step(step),
                    generation: Generation(generation),
                    bytes,
                },
                adam_step,
            }),
        }
    }
}

/// A read may see half of a writer's words: they must fit together.
fn check(words: &[u64; WORDS]) -> u64 {
    let bytes: Vec<u8> = words[..WORDS - 1]
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect();
    xxh3_64(&bytes)
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            step,
            generation,
            bytes,
        } = self;
        write!(f, "{bytes} bytes of step {step} by gang {generation}")
    }
}
