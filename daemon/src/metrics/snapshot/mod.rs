//! What is known at the moment of a scrape.
mod controllers;
mod devices;
mod instances;
mod job;

use super::labels;
use super::sheet::{Labels, Sheet};
use crate::telemetry::{HostSample, Seen};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use robust_proto::v1;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The last of everything.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub node: String,
    pub status: Arc<v1::Status>,
    pub devices: Vec<Seen>,
    pub driver_stuck: bool,
    pub host: Option<HostSample>,
}

#[derive(Debug)]
pub(super) struct SnapshotCollector(pub Arc<Mutex<Snapshot>>);

impl Collector for SnapshotCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let snapshot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sheet = Sheet(encoder);
        snapshot.job(&mut sheet)?;
        snapshot.work(&mut sheet)?;
        snapshot.durable(&mut sheet)?;
        snapshot.ettr(&mut sheet)?;
        snapshot.nodes(&mut sheet)?;
        snapshot.services(&mut sheet)?;
        snapshot.controllers(&mut sheet)?;
        snapshot.instances(&mut sheet)?;
        snapshot.pulls(&mut sheet)?;
        snapshot.instances_use(&mut sheet)?;
        snapshot.devices(&mut sheet)?;
        snapshot.devices_health(&mut sheet)?;
        snapshot.host(&mut sheet)
    }
}

impl Snapshot {
    pub fn new(node: &str) -> Self {
        Self {
            node: node.to_owned(),
            ..Self::default()
        }
    }

    /// One row for each instance, of the roles that have the figure.
    fn each<T>(&self, value: impl Fn(&v1::RoleStatus) -> Option<T>) -> Vec<(Labels, T)> {
        let row = |r: &v1::RoleStatus| {
            let index = r.index.to_string();
            let labels = labels([("role", &*r.role), ("index", &index)]);
            Some((labels, value(r)?))
        };
        self.status.roles.iter().filter_map(row).collect()
    }
}
