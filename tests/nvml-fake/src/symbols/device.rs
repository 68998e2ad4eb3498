//! One device's plain figures.
use super::{INSUFFICIENT_SIZE, INVALID_ARGUMENT, SUCCESS, answer, handle, number, play, shown};
use nvml_wrapper_sys::bindings::*;
use std::ffi::{c_uint, c_ulonglong};

/// How many.
///
/// # Safety
/// As NVML documents: the pointer is the caller's to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> nvmlReturn_t {
    let Some(play) = play().filter(|_| !count.is_null()) else {
        return INVALID_ARGUMENT;
    };
    // SAFETY: not null.
    unsafe { count.write(play.scenario.count()) };
    SUCCESS
}

/// A handle; begins the device's next round, and raises what it raises.
///
/// # Safety
/// As NVML documents: the pointer is the caller's to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(
    index: c_uint,
    device: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    if let Some(mut play) = play().filter(|p| index < p.scenario.count()) {
        *play.rounds.entry(index).or_default() += 1;
        play.strike(index);
        let figures = play.figures(index);
        play.events.raise(index, &figures.xids);
        // A frame that no longer loses it brings it back.
        if figures.lost_at.is_none() {
            play.lost.remove(&index);
        }
    }
    match shown(handle(index), "HandleByIndex") {
        Ok(_) => answer(handle(index), "", device, |_| Some(handle(index))),
        Err(error) => error,
    }
}

/// Its number.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetIndex(device: nvmlDevice_t, index: *mut c_uint) -> nvmlReturn_t {
    answer(device, "Index", index, |_| number(device))
}

/// Time any kernel ran.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetUtilizationRates(
    device: nvmlDevice_t,
    out: *mut nvmlUtilization_t,
) -> nvmlReturn_t {
    answer(device, "UtilizationRates", out, |f| {
        f.util.map(|gpu| nvmlUtilization_t { gpu, memory: 0 })
    })
}

/// Memory.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMemoryInfo_v2(
    device: nvmlDevice_t,
    out: *mut nvmlMemory_v2_t,
) -> nvmlReturn_t {
    answer(device, "MemoryInfo", out, |f| {
        let (total, used) = (f.memory_total?, f.memory_used?);
        Some(nvmlMemory_v2_t {
            version: 2,
            total,
            reserved: 0,
            free: total.saturating_sub(used),
            used,
        })
    })
}

/// Temperature.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTemperature(
    device: nvmlDevice_t,
    _sensor: nvmlTemperatureSensors_t,
    out: *mut c_uint,
) -> nvmlReturn_t {
    answer(device, "Temperature", out, |f| f.temperature_c)
}

/// Power, in milliwatts.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, out: *mut c_uint) -> nvmlReturn_t {
    answer(device, "PowerUsage", out, |f| {
        f.power_w.map(|w| (w * 1e3) as c_uint)
    })
}

/// Why the clocks are low.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCurrentClocksThrottleReasons(
    device: nvmlDevice_t,
    out: *mut c_ulonglong,
) -> nvmlReturn_t {
    answer(device, "ThrottleReasons", out, |f| f.throttle)
}

/// Memory errors. The counts of the device's life are 100 more than those since the driver came.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTotalEccErrors(
    device: nvmlDevice_t,
    kind: nvmlMemoryErrorType_t,
    counter: nvmlEccCounterType_t,
    out: *mut c_ulonglong,
) -> nvmlReturn_t {
    answer(device, "TotalEccErrors", out, |f| {
        let count = match kind == nvmlMemoryErrorType_enum_NVML_MEMORY_ERROR_TYPE_CORRECTED {
            true => f.ecc_corrected,
            false => f.ecc_uncorrected,
        };
        let volatile = counter == nvmlEccCounterType_enum_NVML_VOLATILE_ECC;
        count.map(|n| if volatile { n } else { n + 100 })
    })
}

/// Its processes.
///
/// # Safety
/// As NVML documents: `infos` has room for `count`, or is null to ask for the count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: nvmlDevice_t,
    count: *mut c_uint,
    infos: *mut nvmlProcessInfo_t,
) -> nvmlReturn_t {
    let pids = match shown(device, "RunningProcesses") {
        Ok(figures) => figures.processes.unwrap_or_default(),
        Err(error) => return error,
    };
    let info = |pid: &u32| nvmlProcessInfo_t {
        pid: *pid,
        usedGpuMemory: 0,
        gpuInstanceId: u32::MAX,
        computeInstanceId: u32::MAX,
    };
    let all: Vec<_> = pids.iter().map(info).collect();
    // SAFETY: the caller's contract.
    unsafe { fill(&all, count, infos) }
}

/// How busy its processes kept the multiprocessors.
///
/// # Safety
/// As NVML documents: `out` has room for `count`, or is null to ask for the count.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetProcessUtilization(
    device: nvmlDevice_t,
    out: *mut nvmlProcessUtilizationSample_t,
    count: *mut c_uint,
    since: c_ulonglong,
) -> nvmlReturn_t {
    let figures = match shown(device, "ProcessUtilization") {
        Ok(figures) => figures,
        Err(error) => return error,
    };
    let pids = figures.processes.unwrap_or_default();
    let sample = |pid: &u32| nvmlProcessUtilizationSample_t {
        pid: *pid,
        timeStamp: since + 1,
        smUtil: (figures.sm.unwrap_or_default() / pids.len() as f64) as c_uint,
        memUtil: 0,
        encUtil: 0,
        decUtil: 0,
    };
    let all: Vec<_> = pids.iter().map(sample).collect();
    // SAFETY: the caller's contract.
    unsafe { fill(&all, count, out) }
}

/// Writes a list as NVML does: the count alone where there is no room for it.
///
/// # Safety
/// `count` is valid; `out` has room for it, or is null.
unsafe fn fill<T: Copy>(all: &[T], count: *mut c_uint, out: *mut T) -> nvmlReturn_t {
    // SAFETY: the caller's contract.
    unsafe {
        let room = count.read() as usize;
        count.write(all.len() as c_uint);
        if out.is_null() || room < all.len() {
            return if all.is_empty() {
                SUCCESS
            } else {
                INSUFFICIENT_SIZE
            };
        }
        std::ptr::copy_nonoverlapping(all.as_ptr(), out, all.len());
    }
    SUCCESS
}
