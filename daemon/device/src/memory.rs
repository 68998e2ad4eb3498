//! Memory of a device.
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::{result, sys};

use crate::driver::Device;
use crate::error::DeviceError;

/// Bytes in a device's memory. Clones are the same bytes.
#[derive(Clone)]
pub struct Memory(Arc<Inner>);

struct Inner {
    device: Device,
    address: sys::CUdeviceptr,
    bytes: usize,
    /// Freed with it; not if it is another library's.
    owned: bool,
}

impl Memory {
    /// Allocates zeroed bytes.
    pub fn new(device: &Device, bytes: usize) -> Result<Memory, DeviceError> {
        device.enter()?;
        // SAFETY: the device is current; what is returned is freed once, when `Inner` is dropped.
        let address = unsafe { result::malloc_sync(bytes) }
            .map_err(DeviceError::of("allocating device memory"))?;
        let memory = Memory(Arc::new(Inner {
            device: device.clone(),
            address,
            bytes,
            owned: true,
        }));
        // SAFETY: as many bytes as were allocated. Filling need not be over when the call returns.
        unsafe { result::memset_d8_sync(address, 0, bytes) }
            .and_then(|()| result::ctx::synchronize())
            .map_err(DeviceError::of("clearing device memory"))?;
        Ok(memory)
    }

    /// Memory that another library allocated on the device: a tensor's.
    ///
    /// # Safety
    /// `bytes` bytes at `address` stay allocated as long as this or a clone of it lives.
    pub unsafe fn borrowed(device: &Device, address: u64, bytes: usize) -> Memory {
        Memory(Arc::new(Inner {
            device: device.clone(),
            address,
            bytes,
            owned: false,
        }))
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.bytes
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.0.bytes == 0
    }

    /// Where it lies on its device, for libraries that compute there.
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// The address of a range within it.
    pub(crate) fn at(&self, range: &Range<usize>) -> Result<sys::CUdeviceptr, DeviceError> {
        if range.start <= range.end && range.end <= self.0.bytes {
            return Ok(self.0.address + range.start as u64);
        }
        Err(DeviceError::Bounds {
            offset: range.start,
            len: range.len(),
            bytes: self.0.bytes,
        })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.owned && self.device.enter().is_ok() {
            // SAFETY: allocated by `new`, freed once. A device that is lost has lost it anyway.
            let _ = unsafe { result::free_sync(self.address) };
        }
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory")
            .field("device", &self.0.device.ordinal())
            .field("bytes", &self.0.bytes)
            .finish_non_exhaustive()
    }
}
