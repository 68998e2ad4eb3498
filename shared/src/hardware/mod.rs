//! Hardware health: what a device's readings mean, as pure policy.
//!
//! ```text
//!  readings (NVML, /proc) ──► Watch ──► Finding ──► Advice: ignore | note | drain | fault
//!                             │  ▲
//!                             ▼  │ a counter that rises steadily
//!                            Trend
//! ```
//! A reading is taken by whoever can (the daemon's telemetry, a simulator); [`Watch`] compares each
//! with those before and says what is worth saying, once; [`Finding::advice`] says how grave it is.
//! What follows from the advice is the core's to decide.
mod reading;
mod trend;
mod watch;
mod xid;

#[cfg(test)]
mod tests;

pub use reading::{Reading, Slowdown};
pub use trend::{Rise, Slope, Trend};
pub use watch::{Watch, WatchConfig};
pub use xid::{Xid, xid};

use serde::{Deserialize, Serialize};
use std::fmt;

/// Something a device showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What.
    pub kind: FindingKind,
    /// The same as a sentence, with the figures it rests on.
    pub text: String,
}

impl Finding {
    /// The driver reported an Xid.
    pub fn xid(code: u32) -> Self {
        Self {
            kind: FindingKind::Xid(code),
            text: format!("Xid {code}: {}", xid(code).meaning),
        }
    }

    /// How grave it is.
    pub fn advice(&self) -> Advice {
        self.kind.advice()
    }
}

/// What a device can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// The driver reported this Xid.
    Xid(u32),
    /// The count of uncorrected memory errors grew.
    EccUncorrected,
    /// Corrected memory errors rise steadily: worn memory announces itself so.
    EccCorrectedRising,
    /// A memory row waits to be replaced by a spare one at the next reset.
    RowRemapPending,
    /// A memory row could not be replaced: there is no spare left, or the record failed.
    RowRemapFailed,
    /// The hardware slowed the clocks down, by heat or by a power brake.
    Throttle {
        /// Again and again within the window.
        repeated: bool,
    },
    /// NVLink or PCIe had to send packets again.
    LinkReplay {
        /// Steadily within the window.
        repeated: bool,
    },
    /// The device does not answer any more.
    DeviceLost,
    /// A call into the driver has not returned for longer than the bound.
    DriverStuck,
}

impl FindingKind {
    /// How grave it is.
    pub fn advice(self) -> Advice {
        match self {
            Self::Xid(code) => xid(code).advice,
            Self::EccUncorrected | Self::RowRemapFailed | Self::DeviceLost => Advice::Fault,
            Self::EccCorrectedRising | Self::RowRemapPending => Advice::Drain,
            Self::Throttle { repeated } | Self::LinkReplay { repeated } => match repeated {
                true => Advice::Drain,
                false => Advice::Note,
            },
            // Management calls hang while kernels still run: whether a role hangs too is for its
            // own rule to find (I-8), but nothing new should come to such a device.
            Self::DriverStuck => Advice::Drain,
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Xid(code) => write!(f, "Xid {code}"),
            Self::EccUncorrected => f.write_str("uncorrected memory error"),
            Self::EccCorrectedRising => f.write_str("corrected memory errors rising"),
            Self::RowRemapPending => f.write_str("row remap pending"),
            Self::RowRemapFailed => f.write_str("row remap failed"),
            Self::Throttle { repeated: false } => f.write_str("throttled"),
            Self::Throttle { repeated: true } => f.write_str("throttled repeatedly"),
            Self::LinkReplay { repeated: false } => f.write_str("link replay"),
            Self::LinkReplay { repeated: true } => f.write_str("link replays rising"),
            Self::DeviceLost => f.write_str("device lost"),
            Self::DriverStuck => f.write_str("driver stuck"),
        }
    }
}

/// What to do about a finding, from nothing to the worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// Nothing.
    Ignore,
    /// Show it: an application's error, or a first sign.
    Note,
    /// Move the work off the slot when it can be moved without loss, and place nothing there.
    Drain,
    /// The slot has failed: whoever is on it is to be restarted elsewhere.
    Fault,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ignore => "ignore",
            Self::Note => "note",
            Self::Drain => "drain",
            Self::Fault => "fault",
        })
    }
}
