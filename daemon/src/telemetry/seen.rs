//! Which devices there are, asked once, before anything is started on them.
use super::NvmlAccelerators;
use super::accelerators::Accelerators as _;
use robust_shared::job::{DEVICES_VARIABLE, SeenDevices};
use std::ffi::OsStr;
use std::sync::mpsc::channel;
use std::time::Duration;

/// A healthy driver answers within this, also one that has to wake its devices first.
const PATIENCE: Duration = Duration::from_secs(20);

/// The devices of this daemon's own `CUDA_VISIBLE_DEVICES`, else those that NVML has. Where a driver does
/// not answer, or there is none, it is not known.
pub fn seen_devices(library: &OsStr) -> SeenDevices {
    match std::env::var(DEVICES_VARIABLE) {
        Ok(own) => SeenDevices::listed(&own),
        Err(_) => counted(library).map_or(SeenDevices::Unknown, SeenDevices::Counted),
    }
}

fn counted(library: &OsStr) -> Option<u32> {
    let (found, finds) = channel();
    let library = library.to_owned();
    // A sick driver may keep the thread for ever: nobody waits for it.
    let looks = move || {
        let count = NvmlAccelerators::open(&library).map(|nvml| nvml.devices().len());
        let _ = found.send(count);
    };
    let thread = std::thread::Builder::new().name("devices".to_owned());
    if let Err(error) = thread.spawn(looks) {
        tracing::warn!("devices are not counted: {error}");
        return None;
    }
    match finds.recv_timeout(PATIENCE) {
        Ok(Ok(count)) => u32::try_from(count).ok(),
        Ok(Err(_)) => None,
        Err(_) => {
            tracing::warn!("NVML does not answer: nobody is given devices of its own");
            None
        }
    }
}
