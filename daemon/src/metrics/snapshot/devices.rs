//! The accelerators and the machine.
use super::{Labels, Sheet, Snapshot, labels};
use crate::telemetry::Seen;
use robust_shared::hardware::Reading;
use std::fmt;

impl Snapshot {
    /// One row for each device that has the figure.
    fn of_devices<T>(&self, value: impl Fn(&Reading) -> Option<T>) -> Vec<(Labels, T)> {
        let row = |seen: &Seen| {
            let device = seen.reading.index.to_string();
            let labels = labels([("node", &*self.node), ("device", &device)]);
            Some((labels, value(&seen.reading)?))
        };
        self.devices.iter().filter_map(row).collect()
    }

    /// The same with one more label.
    fn by<T: Copy, const N: usize>(
        &self,
        key: &'static str,
        values: impl Fn(&Reading) -> [(&'static str, Option<T>); N],
    ) -> Vec<(Labels, T)> {
        let flat = |(labels, values): (Labels, [(&'static str, Option<T>); N])| {
            values.into_iter().filter_map(move |(name, value)| {
                let mut labels = labels.clone();
                labels.push((key, name.to_owned()));
                Some((labels, value?))
            })
        };
        let rows = self.of_devices(|r| Some(values(r)));
        rows.into_iter().flat_map(flat).collect()
    }

    pub(super) fn devices(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let up = self.of_devices(|r| Some(f64::from(u8::from(r.lost.is_none()))));
        sheet.gauges("device_up", "1 where the device answers.", up)?;
        let busy = self.by("unit", |r| {
            [
                ("any", r.util_percent.map(|p| p / 100.0)),
                ("sm", r.sm_percent.map(|p| p / 100.0)),
                ("tensor", r.tensor_percent.map(|p| p / 100.0)),
            ]
        });
        let help = "Part of the time that any kernel, multiprocessors or tensor cores were busy.";
        sheet.gauges("device_busy_ratio", help, busy)?;
        let used = self.of_devices(|r| r.memory_used_bytes.map(|b| b as f64));
        sheet.gauges("device_memory_used_bytes", "Memory in use.", used)?;
        let size = self.of_devices(|r| r.memory_total_bytes.map(|b| b as f64));
        sheet.gauges("device_memory_size_bytes", "Memory in all.", size)?;
        let heat = self.of_devices(|r| r.temperature_c.map(f64::from));
        sheet.gauges("device_temperature_celsius", "Temperature.", heat)?;
        let power = self.of_devices(|r| r.power_w);
        sheet.gauges("device_power_watts", "Power drawn.", power)
    }

    pub(super) fn devices_health(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let stuck = f64::from(u8::from(self.driver_stuck));
        let help = "1 while a call into the accelerators' driver does not return.";
        sheet.gauge("driver_stuck", help, stuck)?;
        let ecc = self.by("kind", |r| {
            [
                ("corrected", r.ecc_corrected),
                ("uncorrected", r.ecc_uncorrected),
            ]
        });
        let help = "Memory errors since the driver was loaded.";
        sheet.counters("device_memory_errors", help, ecc)?;
        let links = self.by("link", |r| {
            [
                ("nvlink", r.nvlink_replays),
                ("nvlink_recovery", r.nvlink_recoveries),
                ("pcie", r.pcie_replays),
            ]
        });
        let help = "Packets sent again, and links that had to recover.";
        sheet.counters("device_link_replays", help, links)?;
        let rows = self.of_devices(|r| r.remapped_rows.map(|n| n as f64));
        sheet.gauges("device_remapped_rows", "Memory rows replaced.", rows)?;
        let flag = |is: Option<bool>| is.map(|is| f64::from(u8::from(is)));
        let pending = self.of_devices(|r| flag(r.remap_pending));
        let help = "1 while a memory row waits for a reset to be replaced.";
        sheet.gauges("device_remap_pending", help, pending)?;
        let slow = self.of_devices(|r| flag(r.lost.is_none().then(|| r.slowdown.is_some())));
        let help = "1 while the hardware slows the clocks down.";
        sheet.gauges("device_throttled", help, slow)
    }

    pub(super) fn host(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let Some(host) = self.host else {
            return Ok(());
        };
        let rows = [
            (
                "node_disk_free_bytes",
                "Bytes left on the disk of the state directory.",
                host.disk_free_bytes as f64,
            ),
            (
                "node_disk_size_bytes",
                "Bytes of the disk of the state directory.",
                host.disk_total_bytes as f64,
            ),
            (
                "node_memory_available_bytes",
                "Memory that can be had without swapping.",
                host.memory_available_bytes as f64,
            ),
            (
                "node_memory_size_bytes",
                "Memory of the machine.",
                host.memory_total_bytes as f64,
            ),
            (
                "node_load1",
                "Processes that run or want to, over the last minute.",
                host.load_1m,
            ),
        ];
        for (name, help, value) in rows {
            sheet.gauges(name, help, [(labels([("node", &*self.node)]), value)])?;
        }
        Ok(())
    }
}
