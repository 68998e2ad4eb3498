//! GPU performance monitoring: activity between two samples.
use super::{INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, answer, number, shown};
use nvml_wrapper_sys::bindings::*;

/// What a sample saw.
#[derive(Default)]
struct Sample {
    device: Option<u32>,
    sm: Option<f64>,
    tensor: Option<f64>,
}

/// Whether it is there.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpmQueryDeviceSupport(
    device: nvmlDevice_t,
    out: *mut nvmlGpmSupport_t,
) -> nvmlReturn_t {
    answer(device, "GpmQueryDeviceSupport", out, |f| {
        Some(nvmlGpmSupport_t {
            version: NVML_GPM_SUPPORT_VERSION,
            isSupportedDevice: u32::from(f.gpm == Some(true)),
        })
    })
}

/// Room for a sample.
///
/// # Safety
/// As NVML documents: the pointer is the caller's to write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleAlloc(out: *mut nvmlGpmSample_t) -> nvmlReturn_t {
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    let sample = Box::into_raw(Box::new(Sample::default()));
    // SAFETY: not null.
    unsafe { out.write(sample.cast()) };
    SUCCESS
}

/// Gives it back.
///
/// # Safety
/// `sample` is from [`nvmlGpmSampleAlloc`], and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleFree(sample: nvmlGpmSample_t) -> nvmlReturn_t {
    if !sample.is_null() {
        // SAFETY: the caller's contract.
        drop(unsafe { Box::from_raw(sample.cast::<Sample>()) });
    }
    SUCCESS
}

/// Takes a sample.
///
/// # Safety
/// `sample` is from [`nvmlGpmSampleAlloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmSampleGet(
    device: nvmlDevice_t,
    sample: nvmlGpmSample_t,
) -> nvmlReturn_t {
    match shown(device, "GpmSampleGet") {
        Ok(f) if f.gpm == Some(true) && !sample.is_null() => {
            let seen = Sample {
                device: number(device),
                sm: f.sm,
                tensor: f.tensor,
            };
            // SAFETY: the caller's contract; the old value owns nothing.
            unsafe { sample.cast::<Sample>().write(seen) };
            SUCCESS
        }
        Ok(_) => NOT_SUPPORTED,
        Err(error) => error,
    }
}

/// Activity between two samples: what the later one saw.
///
/// # Safety
/// The request and both its samples are valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlGpmMetricsGet(request: *mut nvmlGpmMetricsGet_t) -> nvmlReturn_t {
    // SAFETY: the caller's contract.
    let (request, before, now) = unsafe {
        let request = &mut *request;
        let (one, two) = (request.sample1, request.sample2);
        (request, &*one.cast::<Sample>(), &*two.cast::<Sample>())
    };
    if request.version != NVML_GPM_METRICS_GET_VERSION || before.device != now.device {
        return INVALID_ARGUMENT;
    }
    for metric in request.metrics.iter_mut().take(request.numMetrics as usize) {
        let value = match metric.metricId {
            nvmlGpmMetricId_t_NVML_GPM_METRIC_SM_UTIL => now.sm,
            nvmlGpmMetricId_t_NVML_GPM_METRIC_ANY_TENSOR_UTIL => now.tensor,
            _ => None,
        };
        metric.value = value.unwrap_or_default();
        metric.nvmlReturn = if value.is_some() {
            SUCCESS
        } else {
            NOT_SUPPORTED
        };
    }
    SUCCESS
}
