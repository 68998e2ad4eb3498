//! Prometheus metrics, from the same status that operators' tools read.
//!
//! ```text
//!  Feeds ── status ──► Snapshot ─────────────┐
//!  telemetry ── devices, machine ──► Snapshot ├─► text, made anew at every scrape
//!  incidents, pulls, findings ──► counters ──┤
//!  /proc/self ───────────────────────────────┘
//! ```
//! A controller that follows has no status, and shows itself ([`FollowerMetrics`]).
//!
//! What the status already counts is shown as it is; only what it forgets (old incidents) or never
//! held (bytes pulled, findings) is counted here, from the daemon's start.
mod follower;
mod process;
mod serve;
mod sheet;
mod snapshot;
mod tally;
#[cfg(test)]
mod tests;
mod text;

pub use follower::{Followed, Follower, FollowerMetrics};
pub use serve::{IsKey, Text, serve};
pub use tally::{Hooked, Traced};

use crate::telemetry::Samples;
use process::ProcessCollector;
use prometheus_client::registry::Registry;
use robust_proto::v1;
use robust_shared::ids::InstanceId;
use sheet::Labels;
use snapshot::{Snapshot, SnapshotCollector};
use std::sync::{Arc, Mutex, PoisonError};
use tally::Tally;

/// All metrics of the daemon.
pub struct Metrics {
    registry: Registry,
    snapshot: Arc<Mutex<Snapshot>>,
    tally: Tally,
}

impl Metrics {
    /// Of the daemon on this machine.
    pub fn new(node: &str) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ProcessCollector));
        let ours = registry.sub_registry_with_prefix("robust");
        let tally = Tally::register(ours);
        let snapshot = Arc::new(Mutex::new(Snapshot::new(node)));
        ours.register_collector(Box::new(SnapshotCollector(Arc::clone(&snapshot))));
        Self {
            registry,
            snapshot,
            tally,
        }
    }

    /// Takes the status.
    pub fn status(&self, status: &Arc<v1::Status>) {
        self.tally.incidents(&status.incidents);
        self.snapshot().status = Arc::clone(status);
    }

    /// Takes the figures of devices and machine.
    pub fn samples(&self, samples: &Samples) {
        self.tally.findings(&samples.devices.findings);
        let mut snapshot = self.snapshot();
        snapshot.devices.clone_from(&samples.devices.seen);
        snapshot.driver_stuck = samples.devices.stuck.is_some();
        snapshot.host = samples.host;
    }

    /// Bytes of weights that an instance pulled and verified.
    pub fn pulled(&self, who: InstanceId, bytes: u64) {
        self.tally.pulled(who, bytes);
    }

    /// Shows from now on what becomes of traces.
    pub fn traces(&self) {
        self.tally.traces();
    }

    /// What became of the traces of so many incidents.
    pub fn traced(&self, what: Traced, count: u64) {
        self.tally.traced(what, count);
    }

    /// Shows from now on what becomes of documents for the webhook.
    pub fn webhook(&self) {
        self.tally.webhook();
    }

    /// What became of so many documents for the webhook.
    pub fn hooked(&self, what: Hooked, count: u64) {
        self.tally.hooked(what, count);
    }

    /// The text of a scrape (OpenMetrics).
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        let mut out = String::new();
        prometheus_client::encoding::text::encode(&mut out, &self.registry)?;
        Ok(out)
    }

    fn snapshot(&self) -> std::sync::MutexGuard<'_, Snapshot> {
        self.snapshot.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels {
    pairs.map(|(key, value)| (key, value.to_owned())).to_vec()
}
