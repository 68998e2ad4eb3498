//! Links and remapped rows.
use super::{NOT_SUPPORTED, SUCCESS, answer, shown};
use crate::scenario::Figures;
use nvml_wrapper_sys::bindings::field_id::*;
use nvml_wrapper_sys::bindings::*;
use std::ffi::{c_int, c_uint, c_ulonglong};

/// PCIe replays.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetPcieReplayCounter(
    device: nvmlDevice_t,
    out: *mut c_uint,
) -> nvmlReturn_t {
    answer(device, "PcieReplayCounter", out, |f| f.pcie_replays)
}

/// Whether a link is up.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetNvLinkState(
    device: nvmlDevice_t,
    link: c_uint,
    out: *mut nvmlEnableState_t,
) -> nvmlReturn_t {
    answer(device, "NvLinkState", out, |f| {
        (link < f.nvlinks?).then_some(nvmlEnableState_enum_NVML_FEATURE_ENABLED)
    })
}

/// A link's errors.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetNvLinkErrorCounter(
    device: nvmlDevice_t,
    link: c_uint,
    counter: nvmlNvLinkErrorCounter_t,
    out: *mut c_ulonglong,
) -> nvmlReturn_t {
    answer(device, "NvLinkErrorCounter", out, |f| {
        if link >= f.nvlinks? {
            return None;
        }
        match counter {
            nvmlNvLinkErrorCounter_enum_NVML_NVLINK_ERROR_DL_REPLAY => f.nvlink_replays,
            nvmlNvLinkErrorCounter_enum_NVML_NVLINK_ERROR_DL_RECOVERY => f.nvlink_recoveries,
            _ => None,
        }
    })
}

/// Fields: the remapped rows, and on Hopper and later the sums over all links.
///
/// # Safety
/// As NVML documents: `values` has `count` entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: nvmlDevice_t,
    count: c_int,
    values: *mut nvmlFieldValue_t,
) -> nvmlReturn_t {
    let figures = match shown(device, "FieldValues") {
        Ok(figures) => figures,
        Err(error) => return error,
    };
    // SAFETY: the caller's contract.
    let values = unsafe { std::slice::from_raw_parts_mut(values, count.max(0) as usize) };
    for value in values {
        let Some(number) = field(&figures, value.fieldId) else {
            value.nvmlReturn = NOT_SUPPORTED;
            continue;
        };
        value.nvmlReturn = SUCCESS;
        value.valueType = nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        value.value.ullVal = number;
    }
    SUCCESS
}

fn field(f: &Figures, id: u32) -> Option<u64> {
    let links = u64::from(f.nvlinks.unwrap_or_default());
    let sum = |each: Option<u64>| each.filter(|_| f.gpm == Some(true)).map(|n| n * links);
    match id {
        NVML_FI_DEV_REMAPPED_COR => f.remapped_rows.map(|rows| rows / 2),
        NVML_FI_DEV_REMAPPED_UNC => f.remapped_rows.map(|rows| rows - rows / 2),
        NVML_FI_DEV_REMAPPED_PENDING => f.remap_pending.map(u64::from),
        NVML_FI_DEV_REMAPPED_FAILURE => f.remap_failed.map(u64::from),
        NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL => sum(f.nvlink_replays),
        NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL => sum(f.nvlink_recoveries),
        _ => None,
    }
}
