//! `[trainer.command]`: ranks that are the user's own programs, which `robust-shim` starts and watches, one
//! beside each.
use super::super::units::seconds;
use super::program::{Stop, here, inherited};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// `[trainer.command]`; paths are relative to the job file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainerCommand {
    /// The program and its arguments, with placeholders. No shell sees them. It is started once for each
    /// rank, with the environment that `torchrun` gives a rank.
    pub argv: Vec<String>,
    /// The folder it is started in.
    #[serde(default = "here")]
    pub cwd: PathBuf,
    /// Variables of its environment, with placeholders.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The variables that it gets from robustd's environment; nothing else passes.
    #[serde(default = "inherited")]
    pub inherit: Vec<String>,
    /// Ports that a life of a rank is lent: `{port}`, `{port1}` and on.
    #[serde(default)]
    pub ports: u32,
    /// When it counts as up.
    #[serde(default)]
    pub ready: Attaches,
    /// How it is ended.
    #[serde(default)]
    pub stop: Stop,
}

/// `ready` of a trainer: it is up once it attached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Attaches {
    /// Seconds after which a program that did not call `robustrl.attach()` counts as failed.
    pub timeout_s: f64,
}

impl Attaches {
    /// `timeout_s` as a duration.
    pub fn timeout(&self) -> Duration {
        seconds(self.timeout_s)
    }
}

impl Default for Attaches {
    fn default() -> Self {
        Self { timeout_s: 1800.0 }
    }
}
