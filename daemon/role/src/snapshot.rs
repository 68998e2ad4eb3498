//! A rank's shard of weights and optimiser in shared memory.
//!
//! One of two slots ([`robust_ckpt::slot`]), by the step's parity: while a step is written, the slot of
//! the committed step before it stays whole. The trainer waits for one copy, and for nothing else.

use std::ops::Range;
use std::path::{Path, PathBuf};

use robust_ckpt::CkptError;
use robust_ckpt::image::Layout;
use robust_ckpt::slot::Slot;
use robust_proto::v1::SnapshotReply;
use robust_shared::ids::{Generation, Step};

pub use robust_ckpt::slot::SnapshotMemory;

/// Bytes of a float32, of which all tensors consist.
const ELEMENT_BYTES: usize = 4;

/// A training state in memory, of which a rank keeps its shard.
#[derive(Clone, Copy)]
pub struct State<'a> {
    /// The step that it is the result of.
    pub step: u64,
    /// The gang that trains it.
    pub generation: u64,
    /// Steps that the optimiser took.
    pub adam_step: u64,
    /// All weights, flat float32.
    pub weights: &'a dyn SnapshotMemory,
    /// The first moments, of the same length.
    pub m: &'a dyn SnapshotMemory,
    /// The second moments, of the same length.
    pub v: &'a dyn SnapshotMemory,
}

/// The rank's part of one of the state's tensors.
struct Shard<'a> {
    whole: &'a dyn SnapshotMemory,
    bytes: Range<usize>,
}

impl<'a> Shard<'a> {
    fn of(whole: &'a dyn SnapshotMemory, layout: Layout) -> Self {
        let range = layout.range();
        let bytes = range.start * ELEMENT_BYTES..range.end * ELEMENT_BYTES;
        Self { whole, bytes }
    }
}

impl SnapshotMemory for Shard<'_> {
    fn bytes(&self) -> usize {
        self.bytes.len()
    }

    fn copy_to(&self, at: usize, to: &mut [u8]) -> Result<(), String> {
        self.whole.copy_to(self.bytes.start + at, to)
    }
}

/// The two slots of a rank.
#[derive(Debug)]
pub struct Slots {
    folder: PathBuf,
    rank: u32,
    ranks: u32,
    slots: [Option<Slot>; 2],
}

impl Slots {
    /// Slots of this rank of so many, as files in this folder; they are opened when needed.
    pub fn new(folder: &Path, rank: u32, ranks: u32) -> Self {
        Self {
            folder: folder.to_owned(),
            rank,
            ranks,
            slots: [None, None],
        }
    }

    /// Bytes that the slots take already: what a rank before this one left.
    pub fn bytes(&self) -> u64 {
        let files = [0, 1].map(|slot| std::fs::metadata(self.path(slot)));
        files.into_iter().flatten().map(|file| file.len()).sum()
    }

    /// Allocates both slots ahead of the first snapshot. What they hold stays: it may be what the
    /// gang is about to restore.
    pub fn prepare(&mut self, elements: usize) -> Result<(), CkptError> {
        let bytes = self.layout(elements).bytes();
        for slot in 0..2 {
            self.open(slot, bytes)?;
        }
        Ok(())
    }

    /// Copies the rank's shard of the state into the slot of its step. A gang that another one has
    /// replaced in that slot is refused (I-1).
    pub fn write(&mut self, state: &State<'_>) -> Result<SnapshotReply, CkptError> {
        let layout = self.layout(state.weights.bytes() / ELEMENT_BYTES);
        let header = layout.header();
        let [weights, m, v] =
            [state.weights, state.m, state.v].map(|whole| Shard::of(whole, layout));
        let parts: [&dyn SnapshotMemory; 4] = [&header.as_slice(), &weights, &m, &v];
        let index = (state.step % 2) as usize;
        let slot = self.open(index, layout.bytes())?;
        let of = (Step(state.step), Generation(state.generation));
        let taken = slot.write(of, state.adam_step, &parts)?;
        Ok(SnapshotReply {
            step: state.step,
            path: self.path(index).to_string_lossy().into_owned(),
            bytes: taken.bytes,
            // Hashed by whoever reads it in the background.
            xxh3: None,
            generation: state.generation,
            adam_step: Some(state.adam_step),
            blake3: None,
        })
    }

    fn layout(&self, elements: usize) -> Layout {
        Layout {
            rank: self.rank,
            ranks: self.ranks,
            elements,
        }
    }

    fn path(&self, slot: usize) -> PathBuf {
        self.folder
            .join(format!("trainer-{}.slot{slot}", self.rank))
    }

    fn open(&mut self, index: usize, bytes: u64) -> Result<&mut Slot, CkptError> {
        let slot = match self.slots[index].take() {
            Some(slot) if slot.capacity() >= bytes => slot,
            _ => Slot::open(&self.path(index), bytes)?,
        };
        Ok(self.slots[index].insert(slot))
    }
}
