//! A device with the pinned memory that its bytes pass through.
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use crate::copies::{Copied, Copies, Copy, Way};
use crate::driver::Device;
use crate::error::DeviceError;
use crate::memory::Memory;
use crate::pool::{BLOCK_BYTES, Block, LOCAL_BLOCKS, Pool, Purpose};

/// The least staging there can be: a block to fetch into, one to serve from, and the local ones.
pub const SMALLEST: usize = (LOCAL_BLOCKS + 2) * BLOCK_BYTES;

/// An open device with a bounded amount of pinned memory and a thread for its copies.
pub struct Staging {
    device: Device,
    pool: Arc<Pool>,
    copies: Copies,
}

impl Staging {
    /// Opens a device and pins at most `bytes`, at least [`SMALLEST`]. Never more afterwards.
    pub fn open(ordinal: usize, bytes: usize) -> Result<Arc<Staging>, DeviceError> {
        if bytes < SMALLEST {
            let least = SMALLEST;
            return Err(DeviceError::Staging { bytes, least });
        }
        let device = Device::open(ordinal)?;
        let pool = Pool::new(&device, bytes)?;
        let copies = Copies::start(&device)?;
        tracing::info!(ordinal, bytes, "device opened");
        Ok(Arc::new(Staging {
            device,
            pool,
            copies,
        }))
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// A block of a purpose, if one is free.
    pub fn take(&self, purpose: Purpose) -> Option<Block> {
        self.pool.take(purpose)
    }

    /// A local block, as soon as one is free.
    pub(crate) fn wait(&self) -> Block {
        self.pool.wait()
    }

    /// How many blocks of a purpose are free.
    pub fn left(&self, purpose: Purpose) -> usize {
        self.pool.left(purpose)
    }

    /// Starts a copy and returns at once.
    pub fn start(&self, copy: Copy) {
        self.copies.send(copy);
    }

    /// Copies from a device to plain memory; returns when it is done. While the device fills one
    /// block, the processor empties the other.
    pub fn read(&self, from: &Memory, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        self.each(
            from,
            offset..offset.saturating_add(to.len()),
            |at, bytes| {
                to[at..at + bytes.len()].copy_from_slice(bytes);
            },
        )
    }

    /// Shows the bytes of a range in order, block by block, with their place in it. `show` must not
    /// read or write through this staging: both blocks are in use.
    pub fn each(
        &self,
        from: &Memory,
        range: Range<usize>,
        mut show: impl FnMut(usize, &[u8]),
    ) -> Result<(), DeviceError> {
        from.at(&range)?;
        let mut turn = Turn::new(self, Way::Down);
        for at in (0..range.len()).step_by(BLOCK_BYTES) {
            let block = turn.block(&mut show)?;
            let len = BLOCK_BYTES.min(range.len() - at);
            turn.start(block, from, range.start + at, (at, len));
        }
        turn.finish(&mut show)
    }

    /// Copies plain memory to a device; returns when it is there.
    pub fn write(&self, to: &Memory, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        to.at(&(offset..offset.saturating_add(from.len())))?;
        let mut turn = Turn::new(self, Way::Up);
        for (at, part) in (0..).step_by(BLOCK_BYTES).zip(from.chunks(BLOCK_BYTES)) {
            let mut block = turn.block(&mut |_, _| ())?;
            block.bytes_mut()[..part.len()].copy_from_slice(part);
            turn.start(block, to, offset + at, (at, part.len()));
        }
        turn.finish(&mut |_, _| ())
    }
}

/// One caller's blocks on their way. When it is gone, so are its copies, also after an error.
struct Turn<'a> {
    staging: &'a Staging,
    way: Way,
    spare: Vec<Block>,
    sent: VecDeque<Sent>,
}

/// A copy under way: its place and length in the range, and where its end is told.
type Sent = ((usize, usize), Receiver<(Block, Copied)>);

impl<'a> Turn<'a> {
    /// With one block, waited for, and a second one if it is free: two callers may share them.
    fn new(staging: &'a Staging, way: Way) -> Self {
        let mut spare = vec![staging.wait()];
        spare.extend(staging.take(Purpose::Local));
        Turn {
            staging,
            way,
            spare,
            sent: VecDeque::new(),
        }
    }

    /// A spare block, or the oldest that was sent; what came down in it is shown.
    fn block(&mut self, show: &mut impl FnMut(usize, &[u8])) -> Result<Block, DeviceError> {
        if let Some(block) = self.spare.pop() {
            return Ok(block);
        }
        let ((at, len), back) = self.sent.pop_front().ok_or(DeviceError::Gone)?;
        match back.recv() {
            Ok((block, Copied::Done)) => {
                if self.way == Way::Down {
                    show(at, &block.bytes()[..len]);
                }
                Ok(block)
            }
            Ok((_, Copied::Failed(error))) => Err(error),
            Ok((_, Copied::Skipped)) | Err(_) => Err(DeviceError::Gone),
        }
    }

    fn start(&mut self, block: Block, memory: &Memory, first: usize, place: (usize, usize)) {
        let (ended, back) = channel();
        self.sent.push_back((place, back));
        self.staging.start(Copy {
            way: self.way,
            block,
            memory: memory.clone(),
            range: first..first + place.1,
            wanted: Box::new(|| true),
            done: Box::new(move |block, copied| drop(ended.send((block, copied)))),
        });
    }

    fn finish(mut self, show: &mut impl FnMut(usize, &[u8])) -> Result<(), DeviceError> {
        self.spare.clear();
        while !self.sent.is_empty() {
            self.block(show)?;
        }
        Ok(())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        for (_, back) in self.sent.drain(..) {
            let _ = back.recv();
        }
    }
}

impl std::fmt::Debug for Staging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Staging")
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}
