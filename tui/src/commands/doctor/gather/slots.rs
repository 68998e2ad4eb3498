//! Which devices the slots of a job's first node would be, were it this machine.
use super::super::facts::{Assigned, Driver, Found};
use robust_shared::job::{DEVICES_VARIABLE, Job, NoSuchDevice, SeenDevices, SlotDevices};

/// None where nobody takes any.
pub(super) fn devices(job: &Job, driver: &Driver) -> Option<Result<SlotDevices, NoSuchDevice>> {
    let node = job.nodes.first()?;
    let takes = job.takes_devices_of(&node.name, &node.pools);
    takes.then(|| job.slot_devices(&node.name, &node.pools, &seen(driver)))
}

/// As robustd would see them, were it started here.
fn seen(driver: &Driver) -> SeenDevices {
    match (std::env::var(DEVICES_VARIABLE), &driver.nvml) {
        (Ok(own), _) => SeenDevices::listed(&own),
        (Err(_), Some(Ok(nvml))) => {
            SeenDevices::Counted(u32::try_from(nvml.devices.len()).unwrap_or(u32::MAX))
        }
        (Err(_), _) => SeenDevices::Unknown,
    }
}

/// The same as facts.
pub(super) fn assigned(job: &Job, of: &Result<SlotDevices, NoSuchDevice>) -> Found<Assigned> {
    let devices = of.as_ref().map_err(ToString::to_string)?;
    let pools = job.nodes.first().into_iter().flat_map(|node| &node.pools);
    let each = pools.filter_map(|(pool, slots)| {
        let of = devices.of_slots(pool, 0..*slots)?;
        Some((pool.clone(), of))
    });
    Ok(Assigned {
        pools: each.collect(),
        unassigned: devices.unassigned.clone(),
    })
}
