//! Devices, contexts and the words of errors.
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::knobs::{FAILURE, misuse};

pub(crate) const SUCCESS: u32 = 0;
pub(crate) const INVALID_VALUE: u32 = 1;
pub(crate) const OUT_OF_MEMORY: u32 = 2;
const NOT_INITIALIZED: u32 = 3;
const NO_DEVICE: u32 = 100;
const INVALID_DEVICE: u32 = 101;
pub(crate) const INVALID_CONTEXT: u32 = 201;

/// Devices there are, unless `CUDA_FAKE_DEVICES` says otherwise.
const DEVICES: c_int = 2;

static STARTED: AtomicBool = AtomicBool::new(false);
static RETAINED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The context that this thread entered: a device's number, one up.
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

fn devices() -> c_int {
    let set = std::env::var("CUDA_FAKE_DEVICES");
    set.ok().and_then(|n| n.parse().ok()).unwrap_or(DEVICES)
}

/// Whether this thread may call; every call that needs a context asks.
pub(crate) fn entered() -> Result<(), u32> {
    if CURRENT.get() == 0 || RETAINED.load(Ordering::SeqCst) == 0 {
        misuse("a call in a thread without a context");
        return Err(INVALID_CONTEXT);
    }
    Ok(())
}

pub(crate) fn code(result: Result<(), u32>) -> u32 {
    result.err().unwrap_or(SUCCESS)
}

/// Starts.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> u32 {
    STARTED.store(true, Ordering::SeqCst);
    if devices() == 0 { NO_DEVICE } else { SUCCESS }
}

/// A device by its number.
///
/// # Safety
/// `device` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> u32 {
    if !STARTED.load(Ordering::SeqCst) {
        return NOT_INITIALIZED;
    }
    if !(0..devices()).contains(&ordinal) {
        return INVALID_DEVICE;
    }
    // SAFETY: the caller's promise.
    unsafe { device.write(ordinal) };
    SUCCESS
}

/// Opens a device's context.
///
/// # Safety
/// `context` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> u32 {
    RETAINED.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the caller's promise.
    unsafe { context.write((device as usize + 1) as *mut c_void) };
    SUCCESS
}

/// Closes it.
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> u32 {
    RETAINED.fetch_sub(1, Ordering::SeqCst);
    SUCCESS
}

/// Enters a context.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> u32 {
    CURRENT.set(context as usize);
    SUCCESS
}

/// Waits for everything of the context: nothing runs outside streams here.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> u32 {
    code(entered())
}

/// An error's name.
///
/// # Safety
/// `text` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(error: u32, text: *mut *const c_char) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { text.write(words(error).0.as_ptr()) };
    SUCCESS
}

/// An error in words.
///
/// # Safety
/// `text` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(error: u32, text: *mut *const c_char) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { text.write(words(error).1.as_ptr()) };
    SUCCESS
}

fn words(error: u32) -> (&'static std::ffi::CStr, &'static std::ffi::CStr) {
    match error {
        SUCCESS => (c"CUDA_SUCCESS", c"no error"),
        OUT_OF_MEMORY => (c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"),
        NO_DEVICE => (
            c"CUDA_ERROR_NO_DEVICE",
            c"no CUDA-capable device is detected",
        ),
        INVALID_DEVICE => (c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
        INVALID_CONTEXT => (c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
        FAILURE => (
            c"CUDA_ERROR_ILLEGAL_ADDRESS",
            c"an illegal memory access was encountered",
        ),
        _ => (c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    }
}
