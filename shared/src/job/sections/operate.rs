//! How it is kept running: `[checkpoint]`, `[weights]`, `[detect]`, `[restart]`, `[[node]]`.
use super::super::units::{millis, seconds};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// `[checkpoint]`: checkpoints on disk; shared-memory snapshots are taken at every step anyway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Checkpoint {
    /// Steps between checkpoints; 0 writes none.
    pub every: u64,
    /// Newest complete checkpoints kept.
    pub keep: u32,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self { every: 10, keep: 3 }
    }
}

/// `[weights]`: how weight versions travel to the rollouts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Weights {
    /// Size of a chunk, the unit of transfer and digest, in KiB.
    pub chunk_kib: u64,
    /// Seconds without a byte of progress after which a source counts as dead.
    pub stall_timeout_s: f64,
    /// Pullers one source serves at a time (I-6).
    pub pullers_per_source: u32,
    /// UCX network devices (`UCX_NET_DEVICES`).
    pub net_devices: String,
}

impl Weights {
    /// Size of a chunk in bytes.
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_kib.saturating_mul(1024)
    }

    /// `stall_timeout_s` as a duration.
    pub fn stall_timeout(&self) -> Duration {
        seconds(self.stall_timeout_s)
    }
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            chunk_kib: 1024,
            stall_timeout_s: 2.0,
            pullers_per_source: 1,
            net_devices: "lo".to_owned(),
        }
    }
}

/// `[detect]`: windows of the detection rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Detect {
    /// Seconds a trainer rank may be inactive in a compute phase.
    pub trainer_idle_window_s: f64,
    /// Seconds a rollout with running requests may give no token before it is probed.
    pub rollout_silent_window_s: f64,
    /// Seconds a probe may take.
    pub probe_timeout_s: f64,
    /// Seconds a started process may take to attach.
    pub attach_timeout_s: f64,
    /// Milliseconds between activity samples.
    pub sample_interval_ms: u64,
}

impl Detect {
    /// `trainer_idle_window_s` as a duration.
    pub fn trainer_idle_window(&self) -> Duration {
        seconds(self.trainer_idle_window_s)
    }

    /// `rollout_silent_window_s` as a duration.
    pub fn rollout_silent_window(&self) -> Duration {
        seconds(self.rollout_silent_window_s)
    }

    /// `probe_timeout_s` as a duration.
    pub fn probe_timeout(&self) -> Duration {
        seconds(self.probe_timeout_s)
    }

    /// `attach_timeout_s` as a duration.
    pub fn attach_timeout(&self) -> Duration {
        seconds(self.attach_timeout_s)
    }

    /// `sample_interval_ms` as a duration.
    pub fn sample_interval(&self) -> Duration {
        millis(self.sample_interval_ms)
    }
}

impl Default for Detect {
    fn default() -> Self {
        Self {
            trainer_idle_window_s: 300.0,
            rollout_silent_window_s: 60.0,
            probe_timeout_s: 5.0,
            attach_timeout_s: 60.0,
            sample_interval_ms: 250,
        }
    }
}

/// `[restart]`: how often one cause may restart a role (I-7).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Restart {
    /// Restarts for one cause within the window; one more escalates.
    pub max_restarts_per_cause: u32,
    /// Seconds after which a restart no longer counts.
    pub window_s: f64,
    /// Milliseconds before the second restart for one cause; doubles with each further one.
    pub backoff_ms: u64,
}

impl Restart {
    /// `window_s` as a duration.
    pub fn window(&self) -> Duration {
        seconds(self.window_s)
    }

    /// `backoff_ms` as a duration.
    pub fn backoff(&self) -> Duration {
        millis(self.backoff_ms)
    }
}

impl Default for Restart {
    fn default() -> Self {
        Self {
            max_restarts_per_cause: 3,
            window_s: 600.0,
            backoff_ms: 100,
        }
    }
}

/// `[[node]]`: a machine and the named sets of its slots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Unique name.
    pub name: String,
    /// Slots the machine has; its pools together may not exceed it. Unchecked if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// Slots by pool. Roles of one pool share its slots (colocation).
    pub pools: BTreeMap<String, u32>,
}
