//! Activity of processes and of accelerators, each sampled by a thread of its own.
//!
//! Processes are read from `/proc`, which answers for stopped ones too. A driver call may hang on
//! a sick accelerator, so nobody waits for one: readers get the last samples and their age.
mod accelerators;
mod nvml;
mod processes;
#[cfg(test)]
mod tests;

pub use accelerators::{Accelerators, NoAccelerator, SlotReading, SlotSample, SlotSampler};
pub use nvml::NvmlAccelerators;
pub use processes::{ProcessSample, Telemetry, Usage, usage};

/// NVML where its library and a device are there, else [`NoAccelerator`]; one log line says which.
pub fn detect_accelerators() -> Box<dyn Accelerators> {
    match NvmlAccelerators::open() {
        Ok(nvml) => {
            tracing::info!("accelerators: {} seen by NVML", nvml.count());
            Box::new(nvml)
        }
        Err(reason) => {
            tracing::info!("no accelerator ({reason}); activity is processor time");
            Box::new(NoAccelerator)
        }
    }
}
