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
    /// When a part of the batch is rolled out (`job.switch_at`, half of it) the trainer's slots go
    /// over from generation to training; the rest is generated meanwhile.
    SemiSync,
    /// Generation never waits for training: one step of warm-up, then both run all the time.
    #[default]
    Async,
}

crate::wire::named! {
    Mode:
    /// The name used in job files and JSON.
    name {
        Sync = "sync",
        SemiSync = "semi-sync",
        Async = "async",
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

crate::wire::named! {
    Policy:
    /// The name used in job files and JSON.
    name {
        Role = "role",
        Task = "task",
    }
}

/// Whether the state directory is kept from programs of the user's that run as robustd's own user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HideState {
    /// Where that can be had: robustd is not root, and the kernel permits user namespaces.
    #[default]
    Auto,
    /// A program from which it cannot be hidden is not started.
    Require,
    /// They see what robustd sees.
    Off,
}

impl HideState {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether each process of the job that robustd starts has a control group of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ControlGroups {
    /// Where robustd may make one. A process with `limits` is only started in one.
    #[default]
    Auto,
    /// A process for which none can be made is not started.
    Require,
    /// None has one.
    Off,
}

impl ControlGroups {
    fn is_default(&self) -> bool {
        *self == Self::default()
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
    /// In mode semi-sync: the share of a batch's prompts whose responses are all finished, above 0
    /// and at most 1, at which the trainer's slots go over to training. Sync is 1 by nature, async 0.
    pub switch_at: f64,
    /// What a fault restarts.
    pub policy: Policy,
    /// Everything random derives from it: prompt order, sampling, initial weights.
    pub seed: u64,
    /// Training steps of the whole job, from 1. Absent: 100, and for a trainer whose loop is its own as
    /// many as its program takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Faults are injected, and drills run against it, only by who says that they know what they do
    /// (`--i-know`).
    pub protected: bool,
    /// Variables of robustd's environment that the job's roles get besides those that all get; one with a
    /// `*` at its end stands for all that begin so, credentials excepted. A program of yours gets what its
    /// own `inherit` names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pass_env: Vec<String>,
    /// Whether programs of yours see nothing of the state directory and of what others of the job have in shared
    /// memory, but for their own folders.
    #[serde(skip_serializing_if = "HideState::is_default")]
    pub hide_state: HideState,
    /// Whether each life of a role or service is in a control group of its own, with which everything that it
    /// started ends, wherever it went.
    #[serde(skip_serializing_if = "ControlGroups::is_default")]
    pub control_groups: ControlGroups,
    /// Seconds a role's process waits for a daemon to answer before it gives up.
    pub daemon_grace_s: f64,
}

impl General {
    /// The share of a batch's finished prompts from which on the trainer works on it.
    pub fn switching_point(&self) -> f64 {
        match self.mode {
            Mode::Sync => 1.0,
            Mode::SemiSync => self.switch_at,
            Mode::Async => 0.0,
        }
    }

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
            switch_at: 0.5,
            policy: Policy::Role,
            seed: 1,
            steps: None,
            protected: false,
            pass_env: Vec::new(),
            hide_state: HideState::default(),
            control_groups: ControlGroups::default(),
            daemon_grace_s: 60.0,
        }
    }
}
