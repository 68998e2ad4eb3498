//! What the job is: `[job]`.
use super::super::units::seconds;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When training may start relative to the batch's rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// When the whole batch is rolled out with the current weights.
    Sync,
    /// When half of the batch is rolled out.
    SemiSync,
    /// Generation never waits for training: one step of warm-up, then both run all the time.
    #[default]
    Async,
}

impl Mode {
    /// The name used in job files and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Sync => "sync",
            Mode::SemiSync => "semi-sync",
            Mode::Async => "async",
        }
    }
}

/// What a fault restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The role that failed.
    #[default]
    Role,
    /// The whole task: the baseline to measure against.
    Task,
}

impl Policy {
    /// The name used in job files and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Policy::Role => "role",
            Policy::Task => "task",
        }
    }
}

/// `[job]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct General {
    /// Letters, digits, `.`, `_` and `-`; 64 at most.
    pub name: String,
    /// When training may start.
    pub mode: Mode,
    /// What a fault restarts.
    pub policy: Policy,
    /// Everything random derives from it: prompt order, sampling, initial weights.
    pub seed: u64,
    /// Training steps of the whole job, from 1.
    pub steps: u64,
    /// Seconds a role's process waits for a daemon to answer before it gives up.
    pub daemon_grace_s: f64,
}

impl General {
    /// `daemon_grace_s` as a duration.
    pub fn daemon_grace(&self) -> Duration {
        seconds(self.daemon_grace_s)
    }
}

impl Default for General {
    fn default() -> Self {
        Self {
            name: "job".to_owned(),
            mode: Mode::Async,
            policy: Policy::Role,
            seed: 1,
            steps: 100,
            daemon_grace_s: 60.0,
        }
    }
}
