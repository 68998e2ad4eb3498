//! Accelerators: the driver, and who still holds them.
use super::super::check::Check;
use super::super::facts::{Assigned, Device, Driver, Facts, Found, Nvml, Process};
use crate::format::bytes;

/// More than this in use by nobody that is known is worth a look.
const HELD: u64 = 256 << 20;

pub(super) fn all(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![driver(&facts.driver)];
    checks.push(device_memory(&facts.driver, &facts.processes));
    checks.push(leftovers(&facts.processes));
    let job = facts.job.as_ref().and_then(|job| job.as_ref().ok());
    checks.extend(job.and_then(|job| Some(by_slot(job.devices.as_ref()?))));
    checks
}

fn driver(driver: &Driver) -> Check {
    const NAME: &str = "driver and NVML";
    match &driver.nvml {
        None => Check::skipped(NAME, super::NOT_ASKED),
        Some(Ok(nvml)) => healthy(NAME, nvml),
        Some(Err(reason)) if driver.nodes == 0 && driver.module.is_none() => {
            Check::skipped(NAME, format!("no accelerator here ({reason})"))
        }
        Some(Err(reason)) => {
            let module = driver.module.as_deref();
            let module = module.map_or_else(String::new, |m| format!(", kernel module {m}"));
            let found = format!("{} devices{module}, but {reason}", driver.nodes);
            Check::fail(NAME, found, mend(reason))
        }
    }
}

fn mend(reason: &str) -> &'static str {
    let reason = reason.to_lowercase();
    if reason.contains("mismatch") {
        "the library and the kernel module are of two versions: load the new module, or reboot"
    } else if reason.contains("did not answer") {
        "the driver hangs: see dmesg for Xid lines; as a rule only a reboot helps"
    } else if reason.contains("no permission") {
        "let this user open /dev/nvidiactl and the devices"
    } else {
        "install the driver's libnvidia-ml.so.1 (in a container: with the NVIDIA toolkit)"
    }
}

fn healthy(name: &'static str, nvml: &Nvml) -> Check {
    let lost = |device: &Found<Device>| device.as_ref().err().cloned();
    let lost: Vec<String> = nvml.devices.iter().filter_map(lost).collect();
    let ecc = |(n, device): (usize, &Found<Device>)| {
        let errors = device.as_ref().ok()?.ecc_uncorrected.filter(|n| *n > 0)?;
        Some(format!("device {n} has {errors} uncorrected memory errors"))
    };
    let ecc: Vec<String> = nvml.devices.iter().enumerate().filter_map(ecc).collect();
    let names: Vec<&str> = nvml
        .devices
        .iter()
        .flatten()
        .map(|d| d.name.as_str())
        .collect();
    let kind = names
        .first()
        .map_or_else(String::new, |n| format!(" ({n})"));
    let cuda = nvml
        .cuda
        .map_or_else(String::new, |(a, b)| format!(", CUDA up to {a}.{b}"));
    let found = format!(
        "{} devices{kind}, driver {}{cuda}",
        nvml.devices.len(),
        nvml.driver
    );
    if !lost.is_empty() {
        let found = format!("{found}; {}", lost.join("; "));
        return Check::fail(
            name,
            found,
            "reset the device or reboot; see dmesg for its Xid",
        );
    }
    match ecc.is_empty() {
        true => Check::ok(name, found),
        false => Check::warn(
            name,
            format!("{found}; {}", ecc.join("; ")),
            "drain the machine and reset the device before a long job",
        ),
    }
}

/// Which devices the job's programs would be given here.
fn by_slot(found: &Found<Assigned>) -> Check {
    const NAME: &str = "devices by slot";
    const FIX: &str =
        "say with `devices` of the [[node]] which slot of which pool has which device";
    let assigned = match found {
        Ok(assigned) => assigned,
        Err(reason) => return Check::fail(NAME, reason, FIX),
    };
    if let Some(why) = &assigned.unassigned {
        return Check::warn(NAME, why, FIX);
    }
    let each = |(pool, devices): &(String, String)| match devices.as_str() {
        "" => format!("{pool}: none"),
        devices => format!("{pool}: {devices}"),
    };
    match assigned.pools.is_empty() {
        true => Check::skipped(NAME, "no device here"),
        false => {
            let pools: Vec<String> = assigned.pools.iter().map(each).collect();
            Check::ok(NAME, pools.join("; "))
        }
    }
}

/// Memory in use that no process here explains: as a rule a process in another container.
fn device_memory(driver: &Driver, processes: &[Process]) -> Check {
    const NAME: &str = "device memory";
    let Some(Ok(nvml)) = &driver.nvml else {
        return Check::skipped(NAME, "no accelerator");
    };
    let unexplained = nvml.devices.iter().enumerate().filter_map(|(n, device)| {
        let used = device.as_ref().ok()?.memory_used;
        let index = u32::try_from(n).ok();
        let known = processes.iter().filter(|p| p.device == index);
        let (count, sum) = known.fold((0, 0), |(c, s), p| (c + 1, s + p.bytes.unwrap_or(0)));
        (count == 0 && used.saturating_sub(sum) > HELD)
            .then(|| format!("device {n}: {} in use", bytes(used)))
    });
    let unexplained: Vec<String> = unexplained.collect();
    match unexplained.is_empty() {
        true => Check::ok(NAME, "nothing in use that no process explains"),
        false => Check::warn(
            NAME,
            format!(
                "{}, by no process that is seen here",
                unexplained.join(", ")
            ),
            "look for it outside this container: nvidia-smi on the host",
        ),
    }
}

fn leftovers(processes: &[Process]) -> Check {
    const NAME: &str = "leftover processes";
    let orphans: Vec<&Process> = processes
        .iter()
        .filter(|p| p.role_of.is_some() && !p.supervised)
        .collect();
    if !orphans.is_empty() {
        let found = described(&orphans);
        let fix = "start robustd again on their state directory, which takes them over, or end them: \
                   kill -9 and their numbers";
        return Check::fail(NAME, found, fix);
    }
    let others: Vec<&Process> = processes
        .iter()
        .filter(|p| p.device.is_some() && p.role_of.is_none())
        .collect();
    if !others.is_empty() {
        let fix = "if they are not meant to share the devices, end them";
        return Check::warn(NAME, described(&others), fix);
    }
    match processes.len() {
        0 => Check::ok(NAME, "none"),
        n => Check::ok(NAME, format!("none; {n} role processes have a daemon")),
    }
}

/// The first few, and how many more.
fn described(processes: &[&Process]) -> String {
    const SHOWN: usize = 4;
    let one = |p: &&Process| {
        let device = p
            .device
            .map_or_else(String::new, |d| format!(" on device {d}"));
        let held = p
            .bytes
            .map_or_else(String::new, |b| format!(" with {}", bytes(b)));
        let of = p.role_of.as_deref();
        let of = of.map_or_else(String::new, |dir| format!(" of {}", dir.display()));
        format!("{} {}{device}{held}{of}", p.name, p.pid)
    };
    let shown: Vec<String> = processes.iter().take(SHOWN).map(one).collect();
    let more = processes.len().saturating_sub(SHOWN);
    match more {
        0 => shown.join(", "),
        n => format!("{} and {n} more", shown.join(", ")),
    }
}
