//! What the command line says of sampling.
use super::args::Args;
use crate::state::StateDir;
use crate::telemetry::{
    DeviceConfig, DeviceSampler, HostSampler, Sources, TestDevices, detect_accelerators,
    seen_devices,
};
use robust_shared::job::SeenDevices;
use std::ffi::OsString;
use std::io;
use std::time::Duration;

/// The samplers to start.
#[derive(Clone, Debug)]
pub(super) struct Sampled {
    library: OsString,
    devices: DeviceConfig,
}

impl Sampled {
    /// As the command line has it.
    pub fn new(args: &Args) -> Self {
        Self {
            library: args.nvml_lib.clone(),
            devices: DeviceConfig {
                stuck_after: Duration::from_secs_f64(args.nvml_stuck_after),
                ..DeviceConfig::default()
            },
        }
    }

    /// The devices, where they are the test library's.
    pub fn test_devices(&self) -> Option<TestDevices> {
        TestDevices::of(&self.library)
    }

    /// The devices that programs which are started here may use.
    pub fn seen_devices(&self) -> SeenDevices {
        seen_devices(&self.library)
    }

    /// Starts them, of this machine.
    pub fn start(&self, state: &StateDir) -> io::Result<Sources> {
        let library = self.library.clone();
        let open = move || detect_accelerators(&library);
        Ok(Sources {
            devices: Some(DeviceSampler::start(open, self.devices)?),
            host: Some(HostSampler::start(state.root().to_owned())?),
        })
    }
}
