//! A device's error counters and why its clocks are low.
use super::have;
use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    NVML_FI_DEV_REMAPPED_COR, NVML_FI_DEV_REMAPPED_FAILURE, NVML_FI_DEV_REMAPPED_PENDING,
    NVML_FI_DEV_REMAPPED_UNC,
};
use robust_shared::hardware::{Reading, Slowdown};

/// Most links a device has (NVML_NVLINK_MAX_LINKS).
const LINKS: u32 = 18;

/// Fills them in.
pub(super) fn read(device: &Device<'_>, reading: &mut Reading) -> Result<(), NvmlError> {
    let ecc = |error, counter| have(device.total_ecc_errors(error, counter));
    reading.ecc_corrected = ecc(MemoryError::Corrected, EccCounter::Volatile)?;
    reading.ecc_uncorrected = ecc(MemoryError::Uncorrected, EccCounter::Volatile)?;
    reading.ecc_corrected_ever = ecc(MemoryError::Corrected, EccCounter::Aggregate)?;
    reading.ecc_uncorrected_ever = ecc(MemoryError::Uncorrected, EccCounter::Aggregate)?;
    reading.slowdown = have(device.current_throttle_reasons())?.and_then(slowdown);
    reading.pcie_replays = have(device.pcie_replay_counter())?.map(u64::from);
    let wanted = [
        NVML_FI_DEV_REMAPPED_COR,
        NVML_FI_DEV_REMAPPED_UNC,
        NVML_FI_DEV_REMAPPED_PENDING,
        NVML_FI_DEV_REMAPPED_FAILURE,
        NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
        NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
    ];
    let [corrected, uncorrected, pending, failed, replays, recoveries] = fields(device, wanted)?;
    reading.remapped_rows = corrected.and_then(|rows| Some(rows + uncorrected?));
    reading.remap_pending = pending.map(|flag| flag != 0);
    reading.remap_failed = failed.map(|flag| flag != 0);
    (reading.nvlink_replays, reading.nvlink_recoveries) = match (replays, recoveries) {
        // Drivers without the sums count link by link.
        (None, None) => links(device)?,
        sums => sums,
    };
    Ok(())
}

fn slowdown(reasons: ThrottleReasons) -> Option<Slowdown> {
    [
        (
            ThrottleReasons::HW_THERMAL_SLOWDOWN,
            Slowdown::HardwareThermal,
        ),
        (
            ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN,
            Slowdown::PowerBrake,
        ),
        (ThrottleReasons::HW_SLOWDOWN, Slowdown::Hardware),
        (
            ThrottleReasons::SW_THERMAL_SLOWDOWN,
            Slowdown::SoftwareThermal,
        ),
    ]
    .into_iter()
    .find_map(|(bit, why)| reasons.contains(bit).then_some(why))
}

fn fields<const N: usize>(
    device: &Device<'_>,
    ids: [u32; N],
) -> Result<[Option<u64>; N], NvmlError> {
    let mut values = [None; N];
    let Some(samples) = have(device.field_values_for(&ids.map(FieldId)))? else {
        return Ok(values);
    };
    for (value, sample) in values.iter_mut().zip(samples) {
        *value = match sample.and_then(|s| s.value) {
            Ok(SampleValue::U32(n)) => Some(u64::from(n)),
            Ok(SampleValue::U64(n)) => Some(n),
            Ok(SampleValue::I64(n)) => u64::try_from(n).ok(),
            Ok(SampleValue::F64(_)) => None,
            Err(error) => have::<u64>(Err(error))?,
        };
    }
    Ok(values)
}

fn links(device: &Device<'_>) -> Result<(Option<u64>, Option<u64>), NvmlError> {
    let (mut replays, mut recoveries) = (None, None);
    for number in 0..LINKS {
        let link = device.link_wrapper_for(number);
        if have(link.is_active())? != Some(true) {
            continue;
        }
        let counters = [
            (&mut replays, ErrorCounter::DlReplay),
            (&mut recoveries, ErrorCounter::DlRecovery),
        ];
        for (sum, counter) in counters {
            if let Some(count) = have(link.error_counter(counter))? {
                *sum = Some(sum.unwrap_or(0) + count);
            }
        }
    }
    Ok((replays, recoveries))
}
