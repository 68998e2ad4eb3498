//! Pinned blocks: one allocation of the driver's, cut up, with a share for every purpose (D-2).
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use cudarc::driver::result;

use crate::driver::Device;
use crate::error::DeviceError;

/// Bytes of a block: room for a piece of a fetch, of which one fits a segment of UCX's TCP.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Blocks for [`Purpose::Local`]: while one is copied by the device, the other is by the processor.
pub(crate) const LOCAL_BLOCKS: usize = 2;

/// What a block is for; each has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Bytes that come from a peer.
    Fetch = 0,
    /// Bytes that go to one.
    Serve = 1,
    /// Bytes that a thread of this process reads or writes.
    Local = 2,
}

/// All blocks of a staging.
pub(crate) struct Pool {
    device: Device,
    /// As an integer: the compiler must not assume who else accesses the bytes.
    slab: usize,
    free: Mutex<[Vec<usize>; 3]>,
    returned: Condvar,
}

/// A pinned block, its holder's alone until it is dropped.
pub struct Block {
    pool: Arc<Pool>,
    index: usize,
    purpose: Purpose,
}

impl Pool {
    /// Pins as many whole blocks as `bytes` has room for.
    pub fn new(device: &Device, bytes: usize) -> Result<Arc<Pool>, DeviceError> {
        let blocks = bytes / BLOCK_BYTES;
        let fetch = blocks.saturating_sub(LOCAL_BLOCKS).div_ceil(2);
        device.enter()?;
        // Not write-combined: the processor digests and sends what the device wrote.
        // SAFETY: the device is current; freed once, with the pool, which every block holds.
        let slab = unsafe { result::malloc_host(blocks * BLOCK_BYTES, 0) }
            .map_err(DeviceError::of("pinning staging memory"))?;
        // SAFETY: as many bytes as were allocated, which nobody else knows: initialised from now on.
        unsafe { slab.cast::<u8>().write_bytes(0, blocks * BLOCK_BYTES) };
        let local = blocks - LOCAL_BLOCKS;
        let free = [
            (0..fetch).rev().collect(),
            (fetch..local).rev().collect(),
            (local..blocks).rev().collect(),
        ];
        Ok(Arc::new(Pool {
            device: device.clone(),
            slab: slab.expose_provenance(),
            free: Mutex::new(free),
            returned: Condvar::new(),
        }))
    }

    /// A free block, if there is one.
    pub fn take(self: &Arc<Self>, purpose: Purpose) -> Option<Block> {
        let index = self.free()[purpose as usize].pop()?;
        Some(self.block(index, purpose))
    }

    /// A free block, as soon as there is one; for [`Purpose::Local`] only, the others' users must not
    /// wait.
    pub fn wait(self: &Arc<Self>) -> Block {
        let purpose = Purpose::Local;
        let mut free = self.free();
        loop {
            if let Some(index) = free[purpose as usize].pop() {
                drop(free);
                return self.block(index, purpose);
            }
            free = self
                .returned
                .wait(free)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// How many are free.
    pub fn left(&self, purpose: Purpose) -> usize {
        self.free()[purpose as usize].len()
    }

    fn block(self: &Arc<Self>, index: usize, purpose: Purpose) -> Block {
        Block {
            pool: Arc::clone(self),
            index,
            purpose,
        }
    }

    fn free(&self) -> MutexGuard<'_, [Vec<usize>; 3]> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let slab = std::ptr::with_exposed_provenance_mut(self.slab);
        if self.device.enter().is_ok() {
            // SAFETY: allocated by `new`; no block is left, and with it no copy.
            let _ = unsafe { result::free_host(slab) };
        }
    }
}

impl Block {
    /// Where its [`BLOCK_BYTES`] bytes are, for libraries that copy by address.
    pub fn as_ptr(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.pool.slab + self.index * BLOCK_BYTES)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: initialised bytes of the slab, which the pool keeps; nobody else has the block.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), BLOCK_BYTES) }
    }

    /// Its bytes, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.as_ptr(), BLOCK_BYTES) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.pool.free()[self.purpose as usize].push(self.index);
        if self.purpose == Purpose::Local {
            self.pool.returned.notify_one();
        }
    }
}

impl std::fmt::Debug for Block {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Block({} for {:?})", self.index, self.purpose)
    }
}
