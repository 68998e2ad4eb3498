//! A device's bytes as a part of a snapshot: copied into a slot, and back, through staging.
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::channel;

use robust_ckpt::slot::{RestoreMemory, SnapshotMemory};

use crate::copies::{Copied, Copy, Way};
use crate::error::DeviceError;
use crate::memory::Memory;
use crate::pool::{BLOCK_BYTES, Block};
use crate::staging::Staging;

/// A run of bytes in a device's memory, as [`robust_ckpt::slot`] takes and restores it: that of a
/// tensor of which a rank keeps a shard.
#[derive(Debug)]
pub struct Tensor {
    staging: Arc<Staging>,
    memory: Memory,
    range: Range<usize>,
    /// What a restore is filling: its place, its length and the block.
    filling: Option<(usize, usize, Block)>,
}

impl Tensor {
    /// These bytes of the memory.
    pub fn new(
        staging: &Arc<Staging>,
        memory: &Memory,
        range: Range<usize>,
    ) -> Result<Tensor, DeviceError> {
        memory.at(&range)?;
        Ok(Tensor {
            staging: Arc::clone(staging),
            memory: memory.clone(),
            range,
            filling: None,
        })
    }
}

impl SnapshotMemory for Tensor {
    fn bytes(&self) -> usize {
        self.range.len()
    }

    fn copy_to(&self, at: usize, to: &mut [u8]) -> Result<(), String> {
        let from = self.range.start.saturating_add(at);
        if to.len() > self.range.len().saturating_sub(at) {
            return Err("it is shorter than the snapshot's part".to_owned());
        }
        let copied = self.staging.read(&self.memory, from, to);
        copied.map_err(|error| error.to_string())
    }
}

impl RestoreMemory for Tensor {
    fn bytes(&self) -> usize {
        self.range.len()
    }

    /// Waits for a block: each is held from here to [`RestoreMemory::filled`] only, for a shard has
    /// more tensors than staging has blocks for them.
    fn part(&mut self, at: usize, most: usize) -> &mut [u8] {
        let len = self.range.len().saturating_sub(at);
        let len = len.min(most).min(BLOCK_BYTES);
        self.filling = None;
        let block = self.staging.wait();
        let (_, _, block) = self.filling.insert((at, len, block));
        &mut block.bytes_mut()[..len]
    }

    fn filled(&mut self) -> Result<(), String> {
        let Some((at, len, block)) = self.filling.take() else {
            return Ok(());
        };
        let first = self.range.start + at;
        let (told, ended) = channel();
        self.staging.start(Copy {
            way: Way::Up,
            block,
            memory: self.memory.clone(),
            range: first..first + len,
            wanted: Box::new(|| true),
            done: Box::new(move |block, copied| {
                // The block is free before anybody hears of it.
                drop(block);
                drop(told.send(copied));
            }),
        });
        match ended.recv() {
            Ok(Copied::Done) => Ok(()),
            Ok(Copied::Failed(error)) => Err(error.to_string()),
            Ok(Copied::Skipped) | Err(_) => Err(DeviceError::Gone.to_string()),
        }
    }
}
