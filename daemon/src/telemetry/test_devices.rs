//! Devices of NVML's test library, which can be made to show something.
use robust_shared::fault::HardwareEvent;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The file that the test library reads beside its scenario: what is shown from its next round on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestDevices {
    control: PathBuf,
}

impl TestDevices {
    /// Those of a library, if it is the test library: it has a scenario.
    pub fn of(library: &OsStr) -> Option<Self> {
        let named = std::env::var_os("NVML_FAKE_SCENARIO").map(PathBuf::from);
        let scenario = named.unwrap_or_else(|| Path::new(library).with_file_name("scenario.toml"));
        scenario.is_file().then(|| Self {
            control: scenario.with_extension("strikes.toml"),
        })
    }

    /// The device on which this process computes shows an event; one that no process is said to use
    /// is the first.
    pub fn show(&self, pid: u32, event: HardwareEvent) -> io::Result<()> {
        let mut entry = format!("[[strike]]\npid = {pid}\n");
        let figure = match event {
            HardwareEvent::Xid(code) => format!("xids = [{code}]"),
            HardwareEvent::EccUncorrected => "ecc_uncorrected = 1000000".to_owned(),
            HardwareEvent::RowRemapPending => "remap_pending = true".to_owned(),
            HardwareEvent::RowRemapFailed => "remap_failed = true".to_owned(),
            // nvmlClocksThrottleReasonHwThermalSlowdown.
            HardwareEvent::Throttle => "throttle = 64".to_owned(),
            HardwareEvent::DeviceLost => "lost_at = \"\"".to_owned(),
        };
        let _ = writeln!(entry, "{figure}");
        // Read whole by the library at any moment: written beside it and renamed.
        let before = fs::read_to_string(&self.control).unwrap_or_default();
        let beside = self.control.with_extension("new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&beside)?;
        file.write_all((before + &entry).as_bytes())?;
        fs::rename(&beside, &self.control)
    }
}
