//! `[service.NAME]`: any other program that the job needs: a reward model, a judge, a tool server.
use super::super::units::seconds;
use super::limits::Limits;
use super::program::{Ready, Stop, here, inherited, one};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// `[service.NAME]`; paths are relative to the job file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Processes of it.
    #[serde(default = "one")]
    pub replicas: u32,
    /// The pool whose slots they occupy. Absent: they need none, and run on the leader's node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Slots of the pool that a replica takes, on one node.
    #[serde(default = "one")]
    pub slots: u32,
    /// The program and its arguments, with placeholders. No shell sees them.
    pub argv: Vec<String>,
    /// The folder it is started in.
    #[serde(default = "here")]
    pub cwd: PathBuf,
    /// The user that it runs as: one of the machine it runs on, by name or number. Absent: robustd's own. Only a
    /// robustd that is root can start programs as others; from them it hides its state directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Variables of its environment, with placeholders.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The variables that it gets from robustd's environment; nothing else passes.
    #[serde(default = "inherited")]
    pub inherit: Vec<String>,
    /// What a process of it may use of its machine.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// Ports that a life of it is lent: `{port}`, `{port1}` and on.
    #[serde(default = "one")]
    pub ports: u32,
    /// When it counts as up.
    #[serde(default)]
    pub ready: Ready,
    /// How it is asked whether it is well. Absent: it is not asked, and only its end is a fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<ServiceHealth>,
    /// How it is ended.
    #[serde(default)]
    pub stop: Stop,
    /// What its absence does to the job.
    #[serde(default)]
    pub needed: Needed,
    /// The roles and services that start only when it is up, and end before it.
    #[serde(default)]
    pub before: Vec<String>,
}

/// `health` of a service: a route that must answer 200.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceHealth {
    /// The route.
    pub path: String,
    /// Seconds between probes.
    #[serde(default = "every_s")]
    pub every_s: f64,
    /// Seconds that an answer may take.
    #[serde(default = "timeout_s")]
    pub timeout_s: f64,
    /// Failed probes in a row that are a fault.
    #[serde(default = "threshold")]
    pub threshold: u32,
}

impl ServiceHealth {
    /// `every_s` as a duration.
    pub fn every(&self) -> Duration {
        seconds(self.every_s)
    }

    /// `timeout_s` as a duration.
    pub fn timeout(&self) -> Duration {
        seconds(self.timeout_s)
    }
}

/// What the absence of a service does to the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Needed {
    /// The job fails when the service's budget of restarts is spent.
    Fail,
    /// The job waits for it.
    #[default]
    Wait,
    /// The job goes on without it.
    Degrade,
}

crate::wire::named! {
    Needed:
    /// As a job file says it.
    name {
        Fail = "fail",
        Wait = "wait",
        Degrade = "degrade",
    }
}

fn every_s() -> f64 {
    10.0
}

fn timeout_s() -> f64 {
    5.0
}

fn threshold() -> u32 {
    3
}
