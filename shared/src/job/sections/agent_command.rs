//! `[agent.command]`: environments and rewards that are the user's own program, which `robust-shim` starts,
//! watches, and gives conversations to.
use super::super::units::seconds;
use super::program::{Stop, here, inherited};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// `[agent.command]`; paths are relative to the job file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentCommand {
    /// The program and its arguments, with placeholders. No shell sees them. It is started once for each
    /// worker and holds `agent.concurrency` conversations at a time.
    pub argv: Vec<String>,
    /// The folder it is started in.
    #[serde(default = "here")]
    pub cwd: PathBuf,
    /// The user that it runs as: one of the machine it runs on, by name or number. Absent: robustd's own. Only a
    /// robustd that is root can start programs as others; from them it hides its state directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Whether it reaches addresses and ports, of its machine and of others. What it needs of the job goes through a Unix
    /// socket, which is a file: an environment that needs no more of the world is best without.
    #[serde(default = "networked", skip_serializing_if = "is_networked")]
    pub network: bool,
    /// Variables of its environment, with placeholders.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The variables that it gets from robustd's environment; nothing else passes.
    #[serde(default = "inherited")]
    pub inherit: Vec<String>,
    /// When it counts as up.
    #[serde(default)]
    pub ready: Attaches,
    /// Seconds that a conversation may wait for the program before it is given back.
    #[serde(default = "silent")]
    pub silent_s: f64,
    /// How it is ended.
    #[serde(default)]
    pub stop: Stop,
}

impl AgentCommand {
    /// `silent_s` as a duration.
    pub fn silent(&self) -> Duration {
        seconds(self.silent_s)
    }
}

fn networked() -> bool {
    true
}

// Nodes of an earlier build do not know the key.
fn is_networked(network: &bool) -> bool {
    *network
}

fn silent() -> f64 {
    600.0
}

/// `ready` of environments: they are up once their program called `robustrl.serve()`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Attaches {
    /// Seconds after which a program that did not counts as failed.
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
