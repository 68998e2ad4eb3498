//! The CUDA driver's library, loaded when it is first asked for, and one of its devices.
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use cudarc::driver::{result, sys};

use crate::error::DeviceError;

/// All that is called here. Every driver of the last ten years has them.
const CALLS: [&str; 18] = [
    "cuInit",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemsetD8_v2",
    "cuCtxSynchronize",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamCreate",
    "cuStreamSynchronize",
    "cuStreamDestroy_v2",
];

/// An open device: its primary context, which is the one that other libraries of the process use.
/// Clones share it.
#[derive(Clone)]
pub struct Device(Arc<Context>);

struct Context {
    ordinal: usize,
    device: sys::CUdevice,
    context: sys::CUcontext,
}

// SAFETY: a context may be made current in any thread; the driver's calls lock what they share.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Device {
    /// Loads the driver, if that was not done yet, and opens a device.
    pub fn open(ordinal: usize) -> Result<Device, DeviceError> {
        driver()?;
        result::init().map_err(DeviceError::of("starting CUDA"))?;
        let number = c_int::try_from(ordinal).unwrap_or(c_int::MAX);
        let device = result::device::get(number).map_err(DeviceError::of("opening a device"))?;
        // SAFETY: a device that the driver just named; released when the context is dropped.
        let context = unsafe { result::primary_ctx::retain(device) }
            .map_err(DeviceError::of("opening a device"))?;
        let device = Device(Arc::new(Context {
            ordinal,
            device,
            context,
        }));
        device.enter()?;
        Ok(device)
    }

    /// Its number.
    pub fn ordinal(&self) -> usize {
        self.0.ordinal
    }

    /// Makes it this thread's device; needed before every call, and cheap.
    pub(crate) fn enter(&self) -> Result<(), DeviceError> {
        // SAFETY: a context that is held.
        unsafe { result::ctx::set_current(self.0.context) }
            .map_err(DeviceError::of("entering a device"))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, released once. A driver that is going down frees it all the same.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Device").field(&self.0.ordinal).finish()
    }
}

/// The library is there and has what is called here: the bindings panic where it has not.
fn driver() -> Result<(), DeviceError> {
    // SAFETY: loads the driver's library, whose initialisers every CUDA program runs.
    if !unsafe { sys::is_culib_present() } {
        let reason = "its library, libcuda.so, cannot be loaded".to_owned();
        return Err(DeviceError::NoDriver { reason });
    }
    // SAFETY: it was just loaded.
    let library = unsafe { sys::culib() };
    for call in CALLS {
        // SAFETY: only looked up, never called through this type.
        if unsafe { library.get::<*const c_void>(call.as_bytes()) }.is_err() {
            let reason = format!("its library has no {call}");
            return Err(DeviceError::NoDriver { reason });
        }
    }
    Ok(())
}
