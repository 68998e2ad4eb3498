//! Streams: copies are kept until the stream is synchronised, and made then.
use std::collections::BTreeMap;
use std::ffi::{c_uint, c_void};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use crate::driver::{INVALID_VALUE, SUCCESS, code, entered};
use crate::knobs::{Count, FAILURE, Knob, add, is_set, misuse, sub, turn};
use crate::memory::{device, is_pinned};

#[derive(Clone, Copy)]
struct Copy {
    up: bool,
    device: u64,
    host: usize,
    len: usize,
}

/// Copies of each stream that were not made yet.
static STREAMS: Mutex<BTreeMap<usize, Vec<Copy>>> = Mutex::new(BTreeMap::new());
static NEXT: Mutex<usize> = Mutex::new(0);

fn with<R>(act: impl FnOnce(&mut BTreeMap<usize, Vec<Copy>>) -> R) -> R {
    act(&mut STREAMS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Makes a stream.
///
/// # Safety
/// `stream` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) -> u32 {
    if let Err(error) = entered() {
        return error;
    }
    let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
    *next += 1;
    with(|all| all.insert(*next, Vec::new()));
    // SAFETY: the caller's promise.
    unsafe { stream.write(*next as *mut c_void) };
    SUCCESS
}

/// Ends it.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(stream: *mut c_void) -> u32 {
    match with(|all| all.remove(&(stream as usize))) {
        Some(left) if left.is_empty() => code(entered()),
        _ => {
            misuse("a stream ended that is not there, or has copies");
            INVALID_VALUE
        }
    }
}

/// Makes the copies.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(stream: *mut c_void) -> u32 {
    if let Err(error) = entered() {
        return error;
    }
    if is_set(Knob::Hold) {
        add(Count::Held, 1);
        while is_set(Knob::Hold) {
            std::thread::sleep(Duration::from_millis(1));
        }
        sub(Count::Held, 1);
    }
    let Some(copies) = with(|all| all.get_mut(&(stream as usize)).map(std::mem::take)) else {
        misuse("a stream that is not there");
        return INVALID_VALUE;
    };
    if turn(Knob::FailSync, false) {
        return FAILURE;
    }
    code(copies.into_iter().try_for_each(make))
}

fn make(copy: Copy) -> Result<(), u32> {
    let Copy {
        up,
        device: address,
        host,
        len,
    } = copy;
    if turn(Knob::FailCopy, true) {
        return Err(FAILURE);
    }
    if !is_pinned(host, len) {
        misuse("pinned memory freed under a copy");
        return Err(INVALID_VALUE);
    }
    device(address, len, |memory| {
        // SAFETY: pinned memory, which the caller leaves alone until this returns.
        let host = unsafe { std::slice::from_raw_parts_mut(host as *mut u8, len) };
        let (knob, from, to) = match up {
            true => (Knob::FlipUp, &*host, memory),
            false => (Knob::FlipDown, &*memory, host),
        };
        to.copy_from_slice(from);
        if turn(knob, false) {
            to[len / 2] ^= 1;
        }
    })?;
    let bytes = if up { Count::BytesUp } else { Count::BytesDown };
    add(bytes, len as u64);
    add(Count::Copies, 1);
    Ok(())
}

fn begin(stream: *mut c_void, copy: Copy) -> u32 {
    if let Err(error) = entered() {
        return error;
    }
    if !is_pinned(copy.host, copy.len) {
        misuse("a copy with memory that is not pinned");
        return INVALID_VALUE;
    }
    if let Err(error) = device(copy.device, copy.len, |_| ()) {
        return error;
    }
    let pushed = with(|all| {
        let stream = all.get_mut(&(stream as usize));
        stream.map(|copies| copies.push(copy)).is_some()
    });
    if !pushed {
        misuse("a stream that is not there");
        return INVALID_VALUE;
    }
    SUCCESS
}

/// Starts a copy to the device.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    bytes: usize,
    stream: *mut c_void,
) -> u32 {
    let copy = Copy {
        up: true,
        device: to,
        host: from as usize,
        len: bytes,
    };
    begin(stream, copy)
}

/// Starts a copy from the device.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    bytes: usize,
    stream: *mut c_void,
) -> u32 {
    let copy = Copy {
        up: false,
        device: from,
        host: to as usize,
        len: bytes,
    };
    begin(stream, copy)
}
