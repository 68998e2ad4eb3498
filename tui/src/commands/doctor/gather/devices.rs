//! Accelerators, as the kernel and NVML show them.
use super::super::facts::{Device, Found, Nvml};
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use std::ffi::OsStr;

/// A process that computes on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Holder {
    /// Its number.
    pub pid: u32,
    /// The device.
    pub device: u32,
    /// Bytes it holds.
    pub bytes: Option<u64>,
}

/// Devices the kernel shows, and the module's version.
pub(super) fn kernel() -> (u32, Option<String>) {
    let nodes = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let is_device = |name: &str| {
        let number = name.strip_prefix("nvidia");
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let nodes = nodes.filter(|e| e.file_name().to_str().is_some_and(is_device));
    let nodes = u32::try_from(nodes.count()).unwrap_or(u32::MAX);
    let module = std::fs::read_to_string("/sys/module/nvidia/version").ok();
    (nodes, module.map(|v| v.trim().to_owned()))
}

/// What NVML says, and who computes there.
pub(super) fn nvml(library: &OsStr) -> Found<(Nvml, Vec<Holder>)> {
    let said = |e: NvmlError| format!("NVML: {e}");
    let nvml = nvml_wrapper::Nvml::builder()
        .lib_path(library)
        .init()
        .map_err(said)?;
    let count = nvml.device_count().map_err(said)?;
    if count == 0 {
        return Err("NVML sees no device".to_owned());
    }
    let (mut devices, mut holders) = (Vec::new(), Vec::new());
    for index in 0..count {
        devices
            .push(device(&nvml, index, &mut holders).map_err(|e| format!("device {index}: {e}")));
    }
    let cuda = nvml.sys_cuda_driver_version().ok();
    let found = Nvml {
        driver: nvml.sys_driver_version().map_err(said)?,
        cuda: cuda.map(|v| {
            let minor = nvml_wrapper::cuda_driver_version_minor(v);
            (nvml_wrapper::cuda_driver_version_major(v), minor)
        }),
        devices,
    };
    Ok((found, holders))
}

fn device(
    nvml: &nvml_wrapper::Nvml,
    index: u32,
    holders: &mut Vec<Holder>,
) -> Result<Device, NvmlError> {
    let device = nvml.device_by_index(index)?;
    let memory = device.memory_info().ok();
    let processes = match device.running_compute_processes() {
        Ok(processes) => processes,
        Err(e @ (NvmlError::GpuLost | NvmlError::ResetRequired)) => return Err(e),
        Err(_) => Vec::new(),
    };
    holders.extend(processes.iter().map(|process| Holder {
        pid: process.pid,
        device: index,
        bytes: match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes),
            UsedGpuMemory::Unavailable => None,
        },
    }));
    Ok(Device {
        name: device
            .name()
            .unwrap_or_else(|_| "of an unknown kind".to_owned()),
        memory_total: memory.as_ref().map_or(0, |m| m.total),
        memory_used: memory.as_ref().map_or(0, |m| m.used),
        ecc_uncorrected: device
            .total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile)
            .ok(),
    })
}
