//! Xid events.
use super::{INVALID_ARGUMENT, SUCCESS, TIMEOUT, answer, handle, number, play};
use nvml_wrapper_sys::bindings::*;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::{c_uint, c_ulonglong};

const XID: c_ulonglong = nvmlEventTypeXidCriticalError as c_ulonglong;

/// Events raised and not yet taken; there is one set for all.
#[derive(Default)]
pub(crate) struct Events {
    registered: BTreeSet<u32>,
    raised: VecDeque<(u32, u64)>,
}

impl Events {
    pub(crate) fn raise(&mut self, device: u32, xids: &[u64]) {
        if self.registered.contains(&device) {
            self.raised.extend(xids.iter().map(|xid| (device, *xid)));
        }
    }
}

/// What can be registered for.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetSupportedEventTypes(
    device: nvmlDevice_t,
    out: *mut c_ulonglong,
) -> nvmlReturn_t {
    answer(device, "SupportedEventTypes", out, |_| Some(XID))
}

/// A set.
///
/// # Safety
/// As NVML documents: the pointer is the caller's to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetCreate(out: *mut nvmlEventSet_t) -> nvmlReturn_t {
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: not null.
    unsafe { out.write(std::ptr::dangling_mut()) };
    SUCCESS
}

/// Gives it back.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(_set: nvmlEventSet_t) -> nvmlReturn_t {
    SUCCESS
}

/// Registers a device.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceRegisterEvents(
    device: nvmlDevice_t,
    types: c_ulonglong,
    _set: nvmlEventSet_t,
) -> nvmlReturn_t {
    match (play(), number(device)) {
        (Some(mut play), Some(device)) if types & XID != 0 => {
            play.events.registered.insert(device);
            SUCCESS
        }
        _ => INVALID_ARGUMENT,
    }
}

/// The next event, if there is one. Does not wait: a scenario has no clock.
///
/// # Safety
/// As NVML documents: the pointer is the caller's to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlEventSetWait_v2(
    _set: nvmlEventSet_t,
    out: *mut nvmlEventData_t,
    _timeout_ms: c_uint,
) -> nvmlReturn_t {
    let Some((device, xid)) = play().and_then(|mut p| p.events.raised.pop_front()) else {
        return TIMEOUT;
    };
    let event = nvmlEventData_t {
        device: handle(device),
        eventType: XID,
        eventData: xid,
        gpuInstanceId: u32::MAX,
        computeInstanceId: u32::MAX,
    };
    // SAFETY: the caller's contract.
    unsafe { out.write(event) };
    SUCCESS
}
