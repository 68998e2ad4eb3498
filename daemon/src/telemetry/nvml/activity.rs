//! How busy a device was since it was last read.
use super::have;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::{Device, Nvml};
use robust_shared::hardware::Reading;

/// What is kept of a device between two readings.
#[derive(Default)]
pub(super) struct Activity {
    /// The last GPM sample: activity is computed between two.
    gpm: Option<GpmSample<'static>>,
    /// The newest sample of its processes' activity.
    seen_us: u64,
}

impl Activity {
    /// Fills in tensor core and multiprocessor activity.
    pub(super) fn read(
        &mut self,
        nvml: &'static Nvml,
        device: &Device<'static>,
        reading: &mut Reading,
    ) -> Result<(), NvmlError> {
        if !have(device.gpm_support())?.unwrap_or(false) {
            reading.sm_percent = self.by_processes(device)?;
            return Ok(());
        }
        let Some(now) = have(device.gpm_sample())? else {
            return Ok(());
        };
        if let Some(before) = self.gpm.replace(now)
            && let Some(now) = &self.gpm
        {
            let wanted = [GpmMetricId::AnyTensorUtil, GpmMetricId::SmUtil];
            let mut metrics = have(gpm_metrics_get(nvml, &before, now, &wanted))?
                .unwrap_or_default()
                .into_iter()
                .map(|metric| metric.ok().map(|m| m.value));
            reading.tensor_percent = metrics.next().flatten();
            reading.sm_percent = metrics.next().flatten();
        }
        Ok(())
    }

    /// Before Hopper: the newest sample of each process, summed.
    fn by_processes(&mut self, device: &Device<'static>) -> Result<Option<f64>, NvmlError> {
        let samples = match device.process_utilization_stats(self.seen_us) {
            // Nothing ran since.
            Err(NvmlError::NotFound) => return Ok(Some(0.0)),
            other => have(other)?,
        };
        let Some(samples) = samples else {
            return Ok(None);
        };
        let newest = samples.iter().map(|s| s.timestamp).max();
        self.seen_us = newest.unwrap_or(self.seen_us);
        let last_of = |pid: u32| {
            let of_pid = samples.iter().filter(move |s| s.pid == pid);
            of_pid.max_by_key(|s| s.timestamp).map(|s| s.sm_util)
        };
        let mut pids: Vec<u32> = samples.iter().map(|s| s.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let sum: u32 = pids.into_iter().filter_map(last_of).sum();
        Ok(Some(f64::from(sum.min(100))))
    }
}
