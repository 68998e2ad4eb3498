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
    /// rank, with the environment that `launcher` says.
    pub argv: Vec<String>,
    /// What `argv` starts.
    #[serde(default)]
    pub launcher: Launcher,
    /// Slots of the pool that each rank has, on one node.
    #[serde(default = "one")]
    pub slots: u32,
    /// The folder it is started in.
    #[serde(default = "here")]
    pub cwd: PathBuf,
    /// The user that every rank runs as: one of the machine it runs on, by name or number. Absent: robustd's own.
    /// Only a robustd that is root can start programs as others; from them it hides its state directory, snapshots
    /// and checkpoints, of which they are given what they take up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
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
    pub ready: TrainerReady,
    /// Regular expressions (crate `regex`): the last line of its log that one of them finds is told as the
    /// reason of its end, where the program wrote none itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// How it is ended.
    #[serde(default)]
    pub stop: Stop,
    /// What of the package `robustrl` it uses. Below `data` its loop is its own: the job has no prompts
    /// and no agents, and is over when every rank ended with code 0.
    #[serde(default)]
    pub level: Level,
    /// Who keeps its state, and in which form.
    #[serde(default)]
    pub snapshot: Kept,
    /// Arguments more from its second life on, with placeholders, for a program that takes its own state
    /// up: `["--resume", "latest"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restore_args: Vec<String>,
    /// Names of phases of its own, which `job.phase()` takes besides those that the rules know. In them it counts
    /// as in its own loop: it computes, and `watch` says when it is hung.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<String>,
    /// When one whose loop is its own counts as hung.
    #[serde(default)]
    pub watch: Watch,
}

impl TrainerCommand {
    /// Whether a gang of another number of ranks takes up what it left.
    pub fn takes_any_number(&self) -> bool {
        self.snapshot == Kept::Dcp && self.launcher != Launcher::Job
    }
}

fn one() -> u32 {
    1
}

/// What a trainer's command starts, and so which environment it gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Launcher {
    /// One rank, with the environment that `torchrun` gives a rank.
    #[default]
    Rank,
    /// The ranks of a node, as `torchrun` does: one process a node, with `torchrun`'s own settings.
    Node,
    /// All there is to start, as a Ray driver does: one process, with the settings of a node.
    Job,
}

/// What of the package a trainer's program uses; each level has those before it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing: it is started, watched, and restarted as a gang.
    None,
    /// `attach` and `phase`.
    Phases,
    /// `publish`; each version is a step.
    Weights,
    /// `restore` and `commit`.
    State,
    /// `batches`: what is trained on is the job's.
    #[default]
    Data,
}

impl Level {
    /// The name used in job files and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "none",
            Level::Phases => "phases",
            Level::Weights => "weights",
            Level::State => "state",
            Level::Data => "data",
        }
    }
}

/// Who keeps a program's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kept {
    /// Its shim, of every committed step, in memory and in checkpoints: each rank's own tensors as they are.
    #[default]
    Slot,
    /// The same, as `torch.distributed.checkpoint` plans it: any number of ranks can take it up.
    Dcp,
    /// Itself: it comes back from its own last checkpoint, and tells only which steps are over.
    Own,
}

/// `watch` of a trainer: what counts as life where its phases say nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Watch {
    /// Seconds without tensor core activity (processor time where there is no accelerator) after which a
    /// program outside of any phase counts as hung.
    pub silent_s: f64,
}

impl Default for Watch {
    fn default() -> Self {
        Self { silent_s: 900.0 }
    }
}

/// `ready` of a trainer: it is up once it attached. One of level `none` never does, and is up when it was
/// started, or by one of `log`, `file` and `after_s`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrainerReady {
    /// Seconds after which a program that is not up counts as failed.
    pub timeout_s: f64,
    /// It is up when this regular expression finds a line of its log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// It is up when this file, relative to its `cwd`, was written since its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// It is up when it ran for so many seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_s: Option<f64>,
}

impl TrainerReady {
    /// `timeout_s` as a duration.
    pub fn timeout(&self) -> Duration {
        seconds(self.timeout_s)
    }

    /// `after_s` as a duration.
    pub fn after(&self) -> Option<Duration> {
        self.after_s.map(seconds)
    }
}

impl Default for TrainerReady {
    fn default() -> Self {
        Self {
            timeout_s: 1800.0,
            log: None,
            file: None,
            after_s: None,
        }
    }
}
