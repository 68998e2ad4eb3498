//! NVIDIA devices over NVML, whose library is loaded at run time.
//!
//! Activity is GPM's tensor core activity on Hopper and later; before, how busy processes kept the
//! multiprocessors. What a device does not support is none. A device that is lost in the middle of a
//! query is a reading too: that it is lost.
mod activity;
mod health;

use super::accelerators::{Accelerators, DeviceSample};
use activity::Activity;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, EventSet, Nvml};
use robust_shared::hardware::Reading;
use std::collections::BTreeMap;
use std::ffi::OsStr;

/// What drivers install; the unversioned name comes only with a package for developers.
pub const LIBRARY: &str = "libnvidia-ml.so.1";
/// Xids taken at a time, so that a storm of them cannot keep the thread.
const XIDS_AT_ONCE: usize = 64;
/// NVML's number for an Xid it has no number for.
const UNKNOWN_XID: u32 = 999;

/// All devices NVML sees. Lives as long as the process: its handles refer to it.
pub struct NvmlAccelerators {
    nvml: &'static Nvml,
    devices: BTreeMap<u32, Activity>,
    xids: Option<EventSet<'static>>,
}

impl NvmlAccelerators {
    /// Loads the library. The error says why there is none, in a few words.
    pub fn open(library: &OsStr) -> Result<Self, String> {
        let said = |e| format!("NVML: {e}");
        let nvml = Nvml::builder().lib_path(library).init().map_err(said)?;
        let count = nvml.device_count().map_err(said)?;
        let nvml: &'static Nvml = Box::leak(Box::new(nvml));
        // The count has devices in it that this process may not use; one lost already counts.
        let usable = |index| match nvml.device_by_index(index) {
            Ok(device) => Some((index, Some(device))),
            Err(error) => is_lost(&error).then_some((index, None)),
        };
        let found: Vec<_> = (0..count).filter_map(usable).collect();
        if found.is_empty() {
            return Err("NVML sees no device".to_owned());
        }
        let xids = watch_xids(nvml, found.iter().filter_map(|(_, device)| device.as_ref()))
            .map_err(|e| tracing::warn!("Xid errors cannot be watched: {e}"))
            .ok();
        let devices = found.iter().map(|(index, _)| (*index, Activity::default()));
        let devices = devices.collect();
        Ok(Self {
            nvml,
            devices,
            xids,
        })
    }

    fn read(&mut self, index: u32) -> Result<DeviceSample, NvmlError> {
        let device = self.nvml.device_by_index(index)?;
        let memory = have(device.memory_info())?;
        let pids: Vec<u32> = have(device.running_compute_processes())?
            .unwrap_or_default()
            .iter()
            .map(|process| process.pid)
            .collect();
        let mut reading = Reading {
            index,
            util_percent: have(device.utilization_rates())?.map(|u| f64::from(u.gpu)),
            memory_used_bytes: memory.as_ref().map(|m| m.used),
            memory_total_bytes: memory.as_ref().map(|m| m.total),
            temperature_c: have(device.temperature(TemperatureSensor::Gpu))?,
            power_w: have(device.power_usage())?.map(|mw| f64::from(mw) / 1000.0),
            ..Reading::default()
        };
        health::read(&device, &mut reading)?;
        if let Some(activity) = self.devices.get_mut(&index) {
            activity.read(self.nvml, &device, &mut reading)?;
        }
        Ok(DeviceSample { reading, pids })
    }
}

impl Accelerators for NvmlAccelerators {
    fn devices(&self) -> Vec<u32> {
        self.devices.keys().copied().collect()
    }

    fn sample(&mut self, device: u32) -> DeviceSample {
        self.read(device).unwrap_or_else(|error| DeviceSample {
            reading: Reading {
                index: device,
                lost: Some(error.to_string()),
                ..Reading::default()
            },
            pids: Vec::new(),
        })
    }

    fn xids(&mut self) -> Vec<(Option<u32>, u32)> {
        let Some(set) = &self.xids else {
            return Vec::new();
        };
        let mut found = Vec::new();
        while found.len() < XIDS_AT_ONCE {
            let Ok(event) = set.wait(0) else { break };
            let xid = match event.event_data {
                Some(XidError::Value(xid)) => u32::try_from(xid).unwrap_or(UNKNOWN_XID),
                Some(XidError::Unknown) => UNKNOWN_XID,
                None => continue,
            };
            // A device that fell off the bus does not even know its number.
            found.push((event.device.index().ok(), xid));
        }
        found
    }
}

/// What a call gave, or nothing where it is not supported; only a lost device ends the reading.
fn have<T>(result: Result<T, NvmlError>) -> Result<Option<T>, NvmlError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_lost(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

fn is_lost(error: &NvmlError) -> bool {
    matches!(error, NvmlError::GpuLost | NvmlError::ResetRequired)
}

fn watch_xids<'a>(
    nvml: &'static Nvml,
    devices: impl Iterator<Item = &'a Device<'static>>,
) -> Result<EventSet<'static>, NvmlError> {
    let mut set = nvml.create_event_set()?;
    // A set is lost with the first device that refuses, so those that cannot are not asked.
    let watchable = |device: &&Device<'_>| {
        device
            .supported_event_types()
            .is_ok_and(|types| types.contains(EventTypes::CRITICAL_XID_ERROR))
    };
    for device in devices.filter(watchable) {
        set = device
            .register_events(EventTypes::CRITICAL_XID_ERROR, set)
            .map_err(|e| e.error)?;
    }
    Ok(set)
}
