//! Activity of processes, accelerators and the machine, each sampled by a thread of its own.
//!
//! ```text
//!  /proc/PID ────────────► telemetry thread ──► Samples ──► driver (one message an interval)
//!  NVML ─► sampler's thread ─► board ──┘ │
//!  /proc, statvfs ─► host thread ─► last ┘
//! ```
//! Processes are read from `/proc`, which answers for stopped ones too. A driver call may hang on
//! a sick accelerator and a file system on a sick disk, so nobody waits for either: the telemetry
//! thread takes the last figures and their age. Nothing is decided here: readings become figures and
//! findings ([`robust_shared::hardware`]), and both are handed on.
mod accelerators;
mod host;
mod nvml;
mod processes;
mod sampler;
mod seen;
mod test_devices;
#[cfg(test)]
mod tests;

pub use accelerators::{Accelerators, DeviceSample, NoAccelerator};
pub use host::{HostSample, HostSampler};
pub use nvml::{LIBRARY, NvmlAccelerators};
pub use processes::{DeviceUse, ProcessSample, Samples, Sources, Telemetry, Usage};
pub use sampler::{DeviceConfig, DeviceFinding, DeviceSampler, Devices, Seen};
pub use seen::seen_devices;
pub use test_devices::TestDevices;

use std::ffi::OsStr;

/// NVML where its library and a device are there, else [`NoAccelerator`]; one log line says which.
/// May block for as long as the driver likes.
pub fn detect_accelerators(library: &OsStr) -> Box<dyn Accelerators> {
    match NvmlAccelerators::open(library) {
        Ok(nvml) => {
            let count = nvml.devices().len();
            tracing::info!("accelerators: {count} seen by NVML");
            Box::new(nvml)
        }
        Err(reason) => {
            tracing::info!("no accelerator ({reason}); activity is processor time");
            Box::new(NoAccelerator)
        }
    }
}
