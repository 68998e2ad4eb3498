//! What commands of all kinds have in common: how a program of the user's is known to be ready, and
//! how it is ended.
use super::super::units::seconds;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// The variables that a program gets of robustd's own environment unless the job file says others.
const INHERITED: [&str; 5] = ["PATH", "HOME", "LD_LIBRARY_PATH", "CUDA_HOME", "HF_HOME"];

/// `ready`: when a program that was started counts as up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ready {
    /// The route that answers 200 once it is up. Absent: the engine's own for an engine, and for a
    /// service that it accepts connections (without a port, that it runs).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Seconds after which one that is not up counts as failed.
    pub timeout_s: f64,
}

impl Ready {
    /// `timeout_s` as a duration.
    pub fn timeout(&self) -> Duration {
        seconds(self.timeout_s)
    }
}

impl Default for Ready {
    fn default() -> Self {
        Self {
            path: None,
            timeout_s: 1800.0,
        }
    }
}

/// `stop`: how a program is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stop {
    /// The signal that asks.
    pub signal: StopSignal,
    /// Seconds until SIGKILL for what is left of it.
    pub grace_s: f64,
}

impl Stop {
    /// `grace_s` as a duration.
    pub fn grace(&self) -> Duration {
        seconds(self.grace_s)
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            signal: StopSignal::Term,
            grace_s: 15.0,
        }
    }
}

/// A signal that a program may be asked to end with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum StopSignal {
    /// SIGTERM.
    #[default]
    Term,
    /// SIGINT, as Ctrl-C sends it.
    Int,
    /// SIGQUIT.
    Quit,
    /// SIGHUP.
    Hup,
    /// SIGUSR1.
    Usr1,
    /// SIGUSR2.
    Usr2,
    /// SIGKILL: it is not asked.
    Kill,
}

pub(super) fn one() -> u32 {
    1
}

pub(super) fn here() -> PathBuf {
    PathBuf::from(".")
}

pub(super) fn inherited() -> Vec<String> {
    INHERITED.map(str::to_owned).into()
}
