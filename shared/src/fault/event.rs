//! What a device can be made to show.
use super::spec::FaultError;
use crate::nearest::nearest;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Something that NVML's test library can be made to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HardwareEvent {
    /// The driver reports this Xid.
    Xid(u32),
    /// An uncorrected memory error.
    EccUncorrected,
    /// A memory row waits to be replaced.
    RowRemapPending,
    /// A memory row could not be replaced.
    RowRemapFailed,
    /// The clocks are slowed down by heat.
    Throttle,
    /// The device does not answer any more.
    DeviceLost,
}

/// All but the Xids.
const NAMED: [HardwareEvent; 5] = [
    HardwareEvent::EccUncorrected,
    HardwareEvent::RowRemapPending,
    HardwareEvent::RowRemapFailed,
    HardwareEvent::Throttle,
    HardwareEvent::DeviceLost,
];

impl HardwareEvent {
    fn name(self) -> &'static str {
        match self {
            Self::Xid(_) => "xid",
            Self::EccUncorrected => "ecc-uncorrected",
            Self::RowRemapPending => "row-remap-pending",
            Self::RowRemapFailed => "row-remap-failed",
            Self::Throttle => "throttle",
            Self::DeviceLost => "device-lost",
        }
    }
}

impl fmt::Display for HardwareEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xid(code) => write!(f, "xid-{code}"),
            other => f.write_str(other.name()),
        }
    }
}

impl FromStr for HardwareEvent {
    type Err = FaultError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let xid = text.strip_prefix("xid-").and_then(|n| n.parse().ok());
        let named = || NAMED.into_iter().find(|e| e.name() == text);
        xid.map(Self::Xid).or_else(named).ok_or_else(|| {
            let hint = match nearest(text, NAMED.iter().map(|e| e.name())) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    let names: Vec<&str> = NAMED.iter().map(|e| e.name()).collect();
                    format!("events are xid-NUMBER, {}", names.join(", "))
                }
            };
            FaultError::Event {
                event: text.to_owned(),
                hint,
            }
        })
    }
}
