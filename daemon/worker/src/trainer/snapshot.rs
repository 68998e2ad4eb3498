//! A rank's shard of weights and optimiser in shared memory.
//!
//! One of two slots ([`robust_ckpt::slot`]), by the step's parity: while a step is written, the slot of
//! the committed step before it stays whole. The trainer waits for one copy, and for nothing else.

use std::path::{Path, PathBuf};

use robust_ckpt::CkptError;
use robust_ckpt::image::Layout;
use robust_ckpt::slot::{Slot, SnapshotMemory};
use robust_proto::v1::SnapshotReply;
use robust_shared::ids::{Generation, Step};

use super::state::TrainState;

/// The two slots of a rank.
pub(super) struct Slots {
    folder: PathBuf,
    rank: u32,
    ranks: u32,
    slots: [Option<Slot>; 2],
}

impl Slots {
    pub fn new(folder: &Path, rank: u32, ranks: u32) -> Self {
        Self {
            folder: folder.to_owned(),
            rank,
            ranks,
            slots: [None, None],
        }
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

    /// Copies the state's shard into the slot of its step.
    pub fn write(
        &mut self,
        state: &TrainState,
        generation: u64,
    ) -> Result<SnapshotReply, CkptError> {
        let params = state.model.params();
        let layout = self.layout(params.len());
        let range = layout.range();
        let bytes = range.start * 4..range.end * 4;
        let [weights, m, v] = [
            params.as_bytes(),
            state.adam.m_bytes(),
            state.adam.v_bytes(),
        ]
        .map(|tensor| &tensor[bytes.clone()]);
        let header = layout.header();
        let parts: [&dyn SnapshotMemory; 4] = [&header.as_slice(), &weights, &m, &v];
        let adam_step = state.adam.step_count();
        let index = (state.step % 2) as usize;
        let slot = self.open(index, layout.bytes())?;
        let of = (Step(state.step), Generation(generation));
        let taken = slot.write(of, adam_step, &parts)?;
        Ok(SnapshotReply {
            step: state.step,
            path: self.path(index).to_string_lossy().into_owned(),
            bytes: taken.bytes,
            // Hashed by whoever reads it in the background.
            xxh3: None,
            generation,
            adam_step: Some(adam_step),
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
