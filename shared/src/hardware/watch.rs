//! One device over time: what its readings show that earlier ones did not.
use super::{Finding, FindingKind, Reading, Slope, Trend};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// From when on rising counters count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchConfig {
    /// Corrected memory errors.
    pub ecc_corrected: Slope,
    /// Slowdowns that began.
    pub throttles: Slope,
    /// NVLink replays and recoveries.
    pub nvlink_replays: Slope,
    /// PCIe replays.
    pub pcie_replays: Slope,
}

impl Default for WatchConfig {
    /// PCIe replays as in DCGM's health watch (8 a minute); the others are ours: what a healthy
    /// device does not show in years, and a failing one in hours.
    fn default() -> Self {
        Self {
            ecc_corrected: Slope::per_minutes(20, 10),
            throttles: Slope::per_minutes(3, 10),
            nvlink_replays: Slope::per_minutes(20, 10),
            pcie_replays: Slope::per_minutes(80, 10),
        }
    }
}

/// Follows one device.
#[derive(Clone, Debug)]
pub struct Watch {
    ecc_corrected: Trend,
    throttles: Trend,
    nvlink: Trend,
    pcie: Trend,
    /// Slowdowns so far.
    slowdowns: u64,
    last: Reading,
    seen: bool,
}

impl Watch {
    /// Of a device of which nothing is known.
    pub fn new(config: &WatchConfig) -> Self {
        Self {
            ecc_corrected: Trend::new(config.ecc_corrected),
            throttles: Trend::new(config.throttles),
            nvlink: Trend::new(config.nvlink_replays),
            pcie: Trend::new(config.pcie_replays),
            slowdowns: 0,
            last: Reading::default(),
            seen: false,
        }
    }

    /// Takes a reading; what it shows is told once, and again only after it had gone.
    pub fn take(&mut self, now: Time, reading: &Reading) -> Vec<Finding> {
        let mut found = Vec::new();
        if let Some(why) = &reading.lost {
            // The last figures stay: a device that comes back is compared with them.
            if self.last.lost.is_none() {
                found.push(finding(FindingKind::DeviceLost, why.clone()));
            }
            self.last.lost = reading.lost.clone();
            return found;
        }
        found.extend(self.memory(now, reading));
        found.extend(self.slowed(now, reading));
        found.extend(self.links(now, reading));
        self.last = reading.clone();
        self.seen = true;
        found
    }

    fn memory(&mut self, now: Time, reading: &Reading) -> Vec<Finding> {
        let mut found = Vec::new();
        // Errors from before the first reading hit nobody who runs now.
        if self.seen
            && let Some(more) = grown(self.last.ecc_uncorrected, reading.ecc_uncorrected)
        {
            let text = format!("{more} more uncorrected memory errors");
            found.push(finding(FindingKind::EccUncorrected, text));
        }
        let trend = &mut self.ecc_corrected;
        if let Some(rise) = reading.ecc_corrected.and_then(|n| trend.add(now, n)) {
            let text = format!("corrected memory errors: {rise}");
            found.push(finding(FindingKind::EccCorrectedRising, text));
        }
        let rows = reading.remapped_rows.unwrap_or_default();
        let began = |was: Option<bool>, is: Option<bool>| is == Some(true) && was != Some(true);
        if began(self.last.remap_pending, reading.remap_pending) {
            let text = format!("a memory row waits for a reset to be remapped ({rows} so far)");
            found.push(finding(FindingKind::RowRemapPending, text));
        }
        if began(self.last.remap_failed, reading.remap_failed) {
            let text = format!("remapping a memory row failed ({rows} remapped so far)");
            found.push(finding(FindingKind::RowRemapFailed, text));
        }
        found
    }

    fn slowed(&mut self, now: Time, reading: &Reading) -> Vec<Finding> {
        let (was, is) = (self.last.slowdown, reading.slowdown);
        let began = is.filter(|_| was.is_none());
        // Where the count stood: the first slowdown ever seen is a step too.
        self.throttles.add(now, self.slowdowns);
        self.slowdowns += u64::from(began.is_some());
        let rise = self.throttles.add(now, self.slowdowns);
        let temperature = reading
            .temperature_c
            .map_or_else(String::new, |c| format!(" at {c} degrees"));
        let said = began.map(|why| {
            let text = match rise {
                Some(rise) => format!("{why}{temperature}, {rise}"),
                None => format!("{why}{temperature}"),
            };
            let repeated = self.throttles.rising();
            finding(FindingKind::Throttle { repeated }, text)
        });
        said.into_iter().collect()
    }

    fn links(&mut self, now: Time, reading: &Reading) -> Vec<Finding> {
        let sum = |r: &Reading| match (r.nvlink_replays, r.nvlink_recoveries) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or_default() + b.unwrap_or_default()),
        };
        let links = [
            ("NVLink", &mut self.nvlink, sum(&self.last), sum(reading)),
            (
                "PCIe",
                &mut self.pcie,
                self.last.pcie_replays,
                reading.pcie_replays,
            ),
        ];
        let mut found = Vec::new();
        for (name, trend, was, is) in links {
            let rise = is.and_then(|n| trend.add(now, n));
            if let Some(rise) = rise {
                let kind = FindingKind::LinkReplay { repeated: true };
                found.push(finding(kind, format!("{name} replays: {rise}")));
            } else if self.seen && was == Some(0) && is > Some(0) {
                // Only the first ever is worth a word; the trend follows the others.
                let kind = FindingKind::LinkReplay { repeated: false };
                let count = is.unwrap_or_default();
                found.push(finding(kind, format!("{name} replays: the first {count}")));
            }
        }
        found
    }
}

fn finding(kind: FindingKind, text: String) -> Finding {
    Finding { kind, text }
}

/// By how much a counter grew; none when it did not or was reset.
fn grown(was: Option<u64>, is: Option<u64>) -> Option<u64> {
    is?.checked_sub(was.unwrap_or_default()).filter(|n| *n > 0)
}
