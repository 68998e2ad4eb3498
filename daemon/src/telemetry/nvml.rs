//! NVIDIA devices over NVML, whose library is loaded at run time. Written against the documented
//! behaviour; its device paths ran on no device yet.
use super::accelerators::{Accelerators, SlotSample};
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::{Device, EventSet, Nvml};
use std::collections::HashMap;
use std::ffi::OsStr;

/// What drivers before the unversioned link package install.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Xids taken per sample at most, so that a storm of them cannot keep the thread.
const XIDS_PER_SAMPLE: usize = 64;

/// All devices NVML sees. Lives as long as the process: its handles refer to it.
pub struct NvmlAccelerators {
    nvml: &'static Nvml,
    count: u32,
    xids: Option<EventSet<'static>>,
    /// Each device's last GPM sample: activity is computed between two.
    gpm: HashMap<u32, GpmSample<'static>>,
}

impl NvmlAccelerators {
    /// Loads the library. The error says why there is none, in a few words.
    pub fn open() -> Result<Self, String> {
        let nvml = Nvml::builder()
            .lib_path(OsStr::new(LIBRARY))
            .init()
            .map_err(|e| format!("NVML: {e}"))?;
        let count = nvml.device_count().map_err(|e| format!("NVML: {e}"))?;
        if count == 0 {
            return Err("NVML sees no device".to_owned());
        }
        let nvml: &'static Nvml = Box::leak(Box::new(nvml));
        let xids = watch_xids(nvml, count)
            .map_err(|e| tracing::warn!("Xid errors cannot be watched: {e}"))
            .ok();
        Ok(Self {
            nvml,
            count,
            xids,
            gpm: HashMap::new(),
        })
    }

    /// How many devices.
    pub fn count(&self) -> u32 {
        self.count
    }

    fn sample_device(&mut self, index: u32) -> Result<SlotSample, NvmlError> {
        let device = self.nvml.device_by_index(index)?;
        let memory = device.memory_info().ok();
        let ecc = device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile);
        Ok(SlotSample {
            index,
            util_percent: device.utilization_rates().ok().map(|u| f64::from(u.gpu)),
            tensor_percent: self.tensor_activity(index, &device),
            memory_used_bytes: memory.as_ref().map(|m| m.used),
            memory_total_bytes: memory.as_ref().map(|m| m.total),
            temperature_c: device.temperature(TemperatureSensor::Gpu).ok(),
            power_w: device.power_usage().ok().map(|mw| f64::from(mw) / 1000.0),
            uncorrected_ecc: ecc.ok(),
            xids: Vec::new(),
        })
    }

    fn tensor_activity(&mut self, index: u32, device: &Device<'static>) -> Option<f64> {
        if !device.gpm_support().unwrap_or(false) {
            return None;
        }
        let now = device.gpm_sample().ok()?;
        let before = self.gpm.remove(&index);
        let metrics = before.and_then(|before| {
            gpm_metrics_get(self.nvml, &before, &now, &[GpmMetricId::AnyTensorUtil]).ok()
        });
        self.gpm.insert(index, now);
        metrics?.into_iter().next()?.ok().map(|metric| metric.value)
    }

    fn take_xids(&self) -> Vec<(u32, u64)> {
        let Some(set) = &self.xids else {
            return Vec::new();
        };
        let mut found = Vec::new();
        while found.len() < XIDS_PER_SAMPLE {
            let Ok(event) = set.wait(0) else { break };
            let xid = match event.event_data {
                Some(XidError::Value(xid)) => xid,
                Some(XidError::Unknown) => 999,
                None => continue,
            };
            found.push((event.device.index().unwrap_or(u32::MAX), xid));
        }
        found
    }
}

impl Accelerators for NvmlAccelerators {
    fn sample(&mut self) -> Result<Vec<SlotSample>, String> {
        let mut samples = Vec::new();
        for index in 0..self.count {
            let sample = self.sample_device(index);
            samples.push(sample.map_err(|e| format!("device {index}: {e}"))?);
        }
        for (index, xid) in self.take_xids() {
            if let Some(sample) = samples.iter_mut().find(|s| s.index == index) {
                sample.xids.push(xid);
            }
        }
        Ok(samples)
    }
}

fn watch_xids(nvml: &'static Nvml, count: u32) -> Result<EventSet<'static>, String> {
    let mut set = nvml.create_event_set().map_err(|e| e.to_string())?;
    for index in 0..count {
        let device = nvml.device_by_index(index).map_err(|e| e.to_string())?;
        set = device
            .register_events(EventTypes::CRITICAL_XID_ERROR, set)
            .map_err(|e| e.to_string())?;
    }
    Ok(set)
}
