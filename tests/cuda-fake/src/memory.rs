//! Device memory and pinned memory.
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ffi::{c_uchar, c_uint, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::{INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, code, entered};
use crate::knobs::{Count, Knob, add, misuse, pinned, sub, turn};

/// Device addresses begin here: no processor has such ones.
const FIRST: u64 = 0x4000_0000_0000_0000;
const PAGE: usize = 4096;

#[derive(Default)]
struct Memories {
    device: BTreeMap<u64, Vec<u8>>,
    next: u64,
    /// Address and bytes of pinned memory.
    pinned: BTreeMap<usize, usize>,
}

static MEMORIES: Mutex<Option<Memories>> = Mutex::new(None);

fn with<R>(act: impl FnOnce(&mut Memories) -> R) -> R {
    let mut all: MutexGuard<'_, _> = MEMORIES.lock().unwrap_or_else(PoisonError::into_inner);
    act(all.get_or_insert_default())
}

/// Lends device memory, if that much of it is there.
pub(crate) fn device<R>(
    address: u64,
    len: usize,
    act: impl FnOnce(&mut [u8]) -> R,
) -> Result<R, u32> {
    let found = with(|all| {
        let (first, bytes) = all.device.range_mut(..=address).next_back()?;
        let start = usize::try_from(address - first).ok()?;
        let range = start..start.checked_add(len)?;
        Some(act(bytes.get_mut(range)?))
    });
    found.ok_or_else(|| {
        misuse("device memory that is not there");
        INVALID_VALUE
    })
}

/// Whether all of these bytes are pinned.
pub(crate) fn is_pinned(address: usize, len: usize) -> bool {
    with(|all| {
        let before = all.pinned.range(..=address).next_back();
        before.is_some_and(|(first, bytes)| address + len <= first + bytes)
    })
}

/// Allocates on the device; what it holds is no zeros.
///
/// # Safety
/// `address` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> u32 {
    if let Err(error) = entered() {
        return error;
    }
    if turn(Knob::FailAlloc, false) {
        return OUT_OF_MEMORY;
    }
    let at = with(|all| {
        let at = FIRST + all.next;
        // A gap behind each, so that an access beyond its end is none of the next one.
        all.next += (bytes + 2 * PAGE).next_multiple_of(PAGE) as u64;
        all.device.insert(at, vec![0xcd; bytes]);
        at
    });
    add(Count::DeviceBytes, bytes as u64);
    // SAFETY: the caller's promise.
    unsafe { address.write(at) };
    SUCCESS
}

/// Frees it.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> u32 {
    match with(|all| all.device.remove(&address)) {
        Some(freed) => {
            sub(Count::DeviceBytes, freed.len() as u64);
            code(entered())
        }
        None => {
            misuse("device memory freed that is not there");
            INVALID_VALUE
        }
    }
}

/// Fills it.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8_v2(address: u64, value: c_uchar, bytes: usize) -> u32 {
    code(entered().and_then(|()| device(address, bytes, |memory| memory.fill(value))))
}

/// Pins host memory.
///
/// # Safety
/// `address` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(
    address: *mut *mut c_void,
    bytes: usize,
    _flags: c_uint,
) -> u32 {
    if let Err(error) = entered() {
        return error;
    }
    let Some(layout) = Layout::from_size_align(bytes, PAGE)
        .ok()
        .filter(|_| bytes > 0)
    else {
        return INVALID_VALUE;
    };
    // SAFETY: a layout of at least one byte.
    let at = unsafe { std::alloc::alloc(layout) };
    if at.is_null() {
        return OUT_OF_MEMORY;
    }
    with(|all| all.pinned.insert(at as usize, bytes));
    pinned(bytes as u64);
    // SAFETY: the caller's promise.
    unsafe { address.write(at.cast()) };
    SUCCESS
}

/// Frees it.
///
/// # Safety
/// Nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(address: *mut c_void) -> u32 {
    let Some(bytes) = with(|all| all.pinned.remove(&(address as usize))) else {
        misuse("pinned memory freed that is not there");
        return INVALID_VALUE;
    };
    sub(Count::PinnedBytes, bytes as u64);
    if let Ok(layout) = Layout::from_size_align(bytes, PAGE) {
        // SAFETY: allocated with this layout, and freed once: it was in the table.
        unsafe { std::alloc::dealloc(address.cast(), layout) };
    }
    code(entered())
}
