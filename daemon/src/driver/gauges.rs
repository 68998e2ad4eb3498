//! Figures of devices and disk that the core has no use for, and operators have.
use crate::telemetry::{DeviceUse, HostSample};
use robust_proto::v1;
use robust_shared::ids::Incarnation;
use std::collections::HashMap;

/// The last of each.
#[derive(Debug, Default)]
pub(super) struct Gauges {
    devices: HashMap<Incarnation, DeviceUse>,
    host: Option<HostSample>,
}

impl Gauges {
    /// What a process's devices show now; none: it uses none that tells.
    pub fn note(&mut self, incarnation: Incarnation, device: Option<DeviceUse>) {
        match device {
            Some(device) => drop(self.devices.insert(incarnation, device)),
            None => self.forget(incarnation),
        }
    }

    /// The leader's machine.
    pub fn note_host(&mut self, host: Option<HostSample>) {
        self.host = host;
    }

    /// It ended.
    pub fn forget(&mut self, incarnation: Incarnation) {
        self.devices.remove(&incarnation);
    }

    /// Fills them in.
    pub fn show(&self, status: &mut v1::Status) {
        if let Some(host) = &self.host {
            status.disk_total_bytes = host.disk_total_bytes;
            status.disk_free_bytes = host.disk_free_bytes;
        }
        for role in &mut status.roles {
            let Some(device) = self.devices.get(&Incarnation(role.incarnation)) else {
                continue;
            };
            role.gpu_percent = device.percent;
            role.gpu_memory_bytes = device.memory_bytes;
            role.gpu_memory_total_bytes = device.memory_total_bytes;
            role.gpu_celsius = device.celsius;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_of_the_life_they_are_of_and_of_none_after_it() {
        let mut gauges = Gauges::default();
        let device = DeviceUse {
            percent: Some(98.0),
            memory_bytes: Some(3),
            memory_total_bytes: Some(4),
            celsius: Some(61),
        };
        gauges.note(Incarnation(7), Some(device));
        gauges.note_host(Some(HostSample {
            disk_total_bytes: 10,
            disk_free_bytes: 4,
            ..HostSample::default()
        }));
        let of = |incarnation| v1::RoleStatus {
            incarnation,
            ..Default::default()
        };
        let shown = |gauges: &Gauges| {
            let mut status = v1::Status {
                roles: vec![of(6), of(7)],
                ..Default::default()
            };
            gauges.show(&mut status);
            let celsius: Vec<_> = status.roles.iter().map(|r| r.gpu_celsius).collect();
            (celsius, status.disk_total_bytes, status.disk_free_bytes)
        };
        assert_eq!(shown(&gauges), (vec![None, Some(61)], 10, 4));
        gauges.forget(Incarnation(7));
        assert_eq!(shown(&gauges).0, [None, None]);
    }
}
