//! One device's figures at one moment.
use serde::{Deserialize, Serialize};
use std::fmt;

/// One device's figures. What the device does not report is none. Counters only count up, unless
/// the driver is loaded anew.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The device's number.
    pub index: u32,
    /// Why it does not answer any more, if it does not. Nothing else is known then.
    pub lost: Option<String>,
    /// Time any kernel ran, percent.
    pub util_percent: Option<f64>,
    /// Tensor core activity since the last reading, percent (Hopper and later).
    pub tensor_percent: Option<f64>,
    /// Multiprocessors in use since the last reading, percent (Hopper and later).
    pub sm_percent: Option<f64>,
    /// Memory used, bytes.
    pub memory_used_bytes: Option<u64>,
    /// Memory in all, bytes.
    pub memory_total_bytes: Option<u64>,
    /// Degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Watts.
    pub power_w: Option<f64>,
    /// Corrected memory errors since the driver was loaded. Normal: 0, or now and then one.
    pub ecc_corrected: Option<u64>,
    /// Uncorrected memory errors since the driver was loaded. Normal: 0.
    pub ecc_uncorrected: Option<u64>,
    /// Corrected memory errors in the device's life.
    pub ecc_corrected_ever: Option<u64>,
    /// Uncorrected memory errors in the device's life.
    pub ecc_uncorrected_ever: Option<u64>,
    /// Memory rows replaced in the device's life. Normal: 0.
    pub remapped_rows: Option<u64>,
    /// A row waits for the next reset to be replaced. Normal: no.
    pub remap_pending: Option<bool>,
    /// A row could not be replaced. Normal: no.
    pub remap_failed: Option<bool>,
    /// The hardware slows the clocks down now.
    pub slowdown: Option<Slowdown>,
    /// Packets sent again over NVLink, all links. Normal: 0.
    pub nvlink_replays: Option<u64>,
    /// NVLinks that had to recover, all links. Normal: 0.
    pub nvlink_recoveries: Option<u64>,
    /// Packets sent again over PCIe. Normal: few.
    pub pcie_replays: Option<u64>,
}

impl Reading {
    /// How busy the device was, percent: tensor cores where they are measured and what runs there uses them (a
    /// collective that hangs keeps multiprocessors busy, and tensor cores never), else multiprocessors, else the time
    /// any kernel ran.
    pub fn activity_percent(&self, uses_tensor_cores: bool) -> Option<f64> {
        let tensor = self.tensor_percent.filter(|_| uses_tensor_cores);
        tensor
            .or(self.sm_percent)
            .or(self.util_percent)
            .or(self.tensor_percent)
    }
}

/// Why the hardware slows the clocks down, strongest reason first. Power capping by software and
/// idleness are no slowdown: they are how a device normally works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Slowdown {
    /// Too hot; the clocks are halved or worse.
    HardwareThermal,
    /// The power supply asserted its brake.
    PowerBrake,
    /// Slowed by the hardware for another reason.
    Hardware,
    /// Too hot; the clocks are lowered a little.
    SoftwareThermal,
}

impl fmt::Display for Slowdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HardwareThermal => "hardware thermal slowdown",
            Self::PowerBrake => "power brake slowdown",
            Self::Hardware => "hardware slowdown",
            Self::SoftwareThermal => "software thermal slowdown",
        })
    }
}
