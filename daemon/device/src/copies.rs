//! The thread that copies between pinned blocks and a device.
//!
//! ```text
//!  Copy ──► queued ──taken with all that waits──► on its stream ──synchronised──► told: copied
//!              └── not wanted any more ─────────────────────────────────────────► told: skipped
//!                                                └── the driver refused ────────► told: error
//! ```
//! Copies of one way end in the order in which they were started. An error of a stream is told to
//! all copies that were on it: which of them it concerns the driver does not say.
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};

use cudarc::driver::{result, sys};

use crate::driver::Device;
use crate::error::DeviceError;
use crate::memory::Memory;
use crate::pool::{BLOCK_BYTES, Block};

/// Copies handed to the driver before it is waited for: a window of a fetch's pieces each way.
const BATCH: usize = 32;

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the block to the device.
    Up = 0,
    /// From the device to the block.
    Down = 1,
}

/// How a copy ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Copied {
    /// The bytes are there.
    Done,
    /// It was not wanted any more: nothing was copied.
    Skipped,
    /// The driver refused it.
    Failed(DeviceError),
}

/// A copy to be made.
pub struct Copy {
    /// Which way.
    pub way: Way,
    /// The block, from its start.
    pub block: Block,
    /// The device's side.
    pub memory: Memory,
    /// Which of its bytes; not more than a block has.
    pub range: Range<usize>,
    /// Asked once, just before the copy is handed to the driver.
    pub wanted: Box<dyn FnOnce() -> bool + Send>,
    /// Told once how it ended, on the copies' thread. The block is its own again.
    pub done: Box<dyn FnOnce(Block, Copied) + Send>,
}

/// Takes copies; the thread ends when this is dropped and all were made.
pub(crate) struct Copies(Sender<Copy>);

/// A copy that the driver has.
type Started = (Block, Box<dyn FnOnce(Block, Copied) + Send>);

struct Streams {
    device: Device,
    of: [sys::CUstream; 2],
}

// SAFETY: used by one thread at a time, and the driver's calls lock what they share.
unsafe impl Send for Streams {}

impl Copies {
    pub fn start(device: &Device) -> Result<Copies, DeviceError> {
        let streams = Streams::new(device)?;
        let (sender, queue) = channel();
        std::thread::Builder::new()
            .name("device-copies".into())
            .spawn(move || run(&streams, &queue))
            .map_err(|_| DeviceError::Gone)?;
        Ok(Copies(sender))
    }

    /// Starts a copy; one that cannot be is told so at once.
    pub fn send(&self, copy: Copy) {
        if let Err(back) = self.0.send(copy) {
            let Copy { block, done, .. } = back.0;
            done(block, Copied::Failed(DeviceError::Gone));
        }
    }
}

fn run(streams: &Streams, queue: &Receiver<Copy>) {
    while let Ok(first) = queue.recv() {
        let mut started: [Vec<Started>; 2] = Default::default();
        for copy in std::iter::once(first).chain(queue.try_iter()).take(BATCH) {
            streams.begin(copy, &mut started);
        }
        for (way, started) in [Way::Up, Way::Down].into_iter().zip(started) {
            if started.is_empty() {
                continue;
            }
            let copied = match streams.finish(way) {
                Ok(()) => Copied::Done,
                Err(error) => Copied::Failed(error),
            };
            for (block, done) in started {
                done(block, copied.clone());
            }
        }
    }
}

impl Streams {
    fn new(device: &Device) -> Result<Streams, DeviceError> {
        device.enter()?;
        let stream = || {
            result::stream::create(result::stream::StreamKind::NonBlocking)
                .map_err(DeviceError::of("making a stream"))
        };
        let mut streams = Streams {
            device: device.clone(),
            of: [stream()?, std::ptr::null_mut()],
        };
        streams.of[1] = stream()?;
        Ok(streams)
    }

    fn begin(&self, copy: Copy, started: &mut [Vec<Started>; 2]) {
        let Copy {
            way,
            mut block,
            memory,
            range,
            wanted,
            done,
        } = copy;
        if !wanted() {
            return done(block, Copied::Skipped);
        }
        let begun = self.copy(way, &mut block, &memory, &range);
        match begun {
            Ok(()) => {
                // The memory is held until the stream was synchronised.
                let done = move |block: Block, copied| {
                    drop(memory);
                    done(block, copied);
                };
                started[way as usize].push((block, Box::new(done)));
            }
            Err(error) => done(block, Copied::Failed(error)),
        }
    }

    fn copy(
        &self,
        way: Way,
        block: &mut Block,
        memory: &Memory,
        range: &Range<usize>,
    ) -> Result<(), DeviceError> {
        let (at, len) = (memory.at(range)?, range.len());
        if len > BLOCK_BYTES {
            return Err(DeviceError::Bounds {
                offset: 0,
                len,
                bytes: BLOCK_BYTES,
            });
        }
        self.device.enter()?;
        let stream = self.of[way as usize];
        match way {
            // SAFETY: within the memory and the block, both held until `finish`.
            Way::Up => unsafe { result::memcpy_htod_async(at, &block.bytes()[..len], stream) }
                .map_err(DeviceError::of("copying to the device")),
            // SAFETY: as above; nobody looks at the block's bytes before `finish`.
            Way::Down => {
                unsafe { result::memcpy_dtoh_async(&mut block.bytes_mut()[..len], at, stream) }
                    .map_err(DeviceError::of("copying from the device"))
            }
        }
    }

    fn finish(&self, way: Way) -> Result<(), DeviceError> {
        // SAFETY: a stream that lives.
        unsafe { result::stream::synchronize(self.of[way as usize]) }.map_err(DeviceError::of(
            match way {
                Way::Up => "copying to the device",
                Way::Down => "copying from the device",
            },
        ))
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        if self.device.enter().is_err() {
            return;
        }
        for stream in self.of.into_iter().filter(|stream| !stream.is_null()) {
            // SAFETY: created once, destroyed once; nothing runs on it any more.
            let _ = unsafe { result::stream::destroy(stream) };
        }
    }
}
