//! `[rollout.command]`: a rollout that is the user's own program, an inference engine, which
//! `robust-shim` starts, watches and speaks with.
use super::super::units::seconds;
use super::program::{Ready, Stop, here, inherited, one};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// `[rollout.command]`; paths are relative to the job file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RolloutCommand {
    /// The engine, which says what the shim speaks with it.
    pub kind: EngineKind,
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
    /// Slots of the pool that a replica takes, on one node (tensor parallel).
    #[serde(default = "one")]
    pub slots: u32,
    /// Ports that a life of it is lent: `{port}`, `{port1}` and on.
    #[serde(default = "one")]
    pub ports: u32,
    /// The port of replica 0 for clients, each further replica's one higher: kept over restarts.
    /// Absent: any port, another one in each life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<u16>,
    /// A file with the key that the engine wants, which is sent to it as a bearer token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// Whether clients need no key at its own address.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// When it counts as up.
    #[serde(default)]
    pub ready: Ready,
    /// How the rule `health probe` asks it, and that rule's settings where they differ.
    #[serde(default)]
    pub health: EngineHealth,
    /// How it is paused. Absent: `retract` for SGLang, which empties its cache only if no request stands
    /// in it, `keep` for vLLM, else `in_place`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<PauseMode>,
    /// What a hybrid engine does while its rank has the slot they share. Absent: `sleep` where it can be
    /// given its weights again afterwards, else `pause`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hybrid: Option<HybridMode>,
    /// Requests it is given at a time; more wait for the next engine that has room.
    #[serde(default = "requests")]
    pub requests: u32,
    /// How weights come into it.
    #[serde(default)]
    pub weights: EngineWeights,
    /// The numbers that it holds, as which weights travel. Of bfloat16 checksums are not looked at, and the
    /// canary is farther off.
    #[serde(default)]
    pub dtype: Dtype,
    /// What is looked at after weights were loaded, before it gets traffic.
    #[serde(default = "verifications")]
    pub verify: Vec<Verification>,
    /// The greedy request whose log-probabilities are held against the trainer's.
    #[serde(default)]
    pub canary: Canary,
    /// What becomes of cached keys and values when weights change.
    #[serde(default)]
    pub flush: Flush,
    /// Seconds that loading weights may take.
    #[serde(default = "load_s")]
    pub load_s: f64,
    /// How it is ended.
    #[serde(default)]
    pub stop: Stop,
    /// Engines that one trajectory may take along before it is set aside; 0: any number.
    #[serde(default = "poison")]
    pub poison: u32,
    /// How the port that the engine itself opens is kept from others.
    #[serde(default)]
    pub isolate: Isolate,
}

impl RolloutCommand {
    /// How the engine is paused.
    pub fn pause_mode(&self) -> PauseMode {
        self.pause.unwrap_or_else(|| self.kind.default_pause())
    }

    /// What a hybrid engine does while its rank has the slot.
    pub fn hybrid_mode(&self) -> HybridMode {
        let can_sleep = self.kind.sleeps_with().is_some() && self.weights.are_loaded();
        let own = match can_sleep {
            true => HybridMode::Sleep,
            false => HybridMode::Pause,
        };
        self.hybrid.unwrap_or(own)
    }

    /// The route that answers 200 once the engine is up.
    pub fn ready_path(&self) -> &str {
        let own = self.ready.path.as_deref();
        own.unwrap_or_else(|| self.kind.ready_path())
    }

    /// The port of a replica for clients, where the job fixes it; none where that is no port.
    pub fn fixed_port(&self, index: u32) -> Option<u16> {
        let port = u32::from(self.fixed?).checked_add(index)?;
        u16::try_from(port).ok()
    }

    /// Most that a token's log-probability may differ from the trainer's, in nats.
    pub fn tolerance(&self) -> f64 {
        let of_numbers = match self.dtype {
            Dtype::Float32 => 0.0005,
            Dtype::Bfloat16 => 0.05,
        };
        self.canary.tolerance.unwrap_or(of_numbers)
    }

    /// `load_s` as a duration.
    pub fn load(&self) -> Duration {
        seconds(self.load_s)
    }
}

/// An inference engine that the shim speaks with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// SGLang's server.
    Sglang,
    /// vLLM's OpenAI-compatible server.
    Vllm,
    /// A program that speaks as the built-in rollout does.
    Robust,
}

crate::wire::named! {
    EngineKind:
    /// As a job file says it.
    name {
        Sglang = "sglang",
        Vllm = "vllm",
        Robust = "robust",
    }
}

impl EngineKind {
    /// The ways in which it can be paused.
    pub fn pauses(self) -> &'static [PauseMode] {
        match self {
            Self::Sglang | Self::Robust => {
                &[PauseMode::Abort, PauseMode::Retract, PauseMode::InPlace]
            }
            Self::Vllm => &[PauseMode::Abort, PauseMode::Wait, PauseMode::Keep],
        }
    }

    /// The way that keeps what runs and lets the cache be emptied.
    pub fn default_pause(self) -> PauseMode {
        match self {
            Self::Sglang => PauseMode::Retract,
            Self::Robust => PauseMode::InPlace,
            Self::Vllm => PauseMode::Keep,
        }
    }

    /// The route that answers 200 once it is up. SGLang's `/health` generates, which takes a second.
    pub fn ready_path(self) -> &'static str {
        match self {
            Self::Sglang => "/model_info",
            Self::Vllm | Self::Robust => "/health",
        }
    }

    /// The argument with which it can give its memory back. Without it, it says that it did so and keeps
    /// all of it; none where it never does.
    pub fn sleeps_with(self) -> Option<&'static str> {
        match self {
            Self::Vllm => Some("--enable-sleep-mode"),
            Self::Sglang => Some("--enable-memory-saver"),
            Self::Robust => None,
        }
    }

    /// The version that RobustRL's tests ran with; none for programs that are not ours to test.
    pub fn tested_version(self) -> Option<&'static str> {
        match self {
            Self::Sglang => Some("0.5.23"),
            Self::Vllm => Some("0.32.0"),
            Self::Robust => None,
        }
    }
}

/// What a paused engine does with the requests it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseMode {
    /// They end, with what they have.
    Abort,
    /// They give up their cache and are computed again (SGLang).
    Retract,
    /// They stand still and keep their cache (SGLang).
    InPlace,
    /// They are generated to their end first (vLLM).
    Wait,
    /// They stand still and keep their cache (vLLM).
    Keep,
}

impl PauseMode {
    /// As a job file and the engine say it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Abort => "abort",
            Self::Retract => "retract",
            Self::InPlace => "in_place",
            Self::Wait => "wait",
            Self::Keep => "keep",
        }
    }
}

/// What a hybrid engine does while its rank has the slot that they share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HybridMode {
    /// It gives the device's memory back, and its weights are loaded and verified anew before it goes on.
    Sleep,
    /// It computes nothing and keeps its memory.
    Pause,
}

impl HybridMode {
    /// As a job file says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sleep => "sleep",
            Self::Pause => "pause",
        }
    }
}

/// `health`: what the rule `health probe` asks of an engine. What is absent is as `[detect.health_probe]`
/// has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EngineHealth {
    /// What is asked.
    pub by: ProbeBy,
    /// The route, with `by = "path"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Seconds from the engine's link to the first probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_wait_s: Option<f64>,
    /// Seconds between probes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_s: Option<f64>,
    /// Seconds that an answer may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<f64>,
    /// Failed probes in a row that are a fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threshold: Option<u32>,
}

/// How an engine is asked whether it is well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeBy {
    /// It must generate one token: that it answers some other question proves nothing.
    #[default]
    Generate,
    /// A route of it must answer 200.
    Path,
}

/// How weights come into an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineWeights {
    /// The shim lays them into shared memory as safetensors, and the engine loads them from there.
    #[default]
    Disk,
    /// By a receiver within the engine.
    Plugin,
    /// The user's own trainer sends them; versions are only seen.
    Theirs,
    /// Not at all: it serves what it was started with.
    None,
}

crate::wire::named! {
    EngineWeights:
    /// As a job file says it.
    name {
        Disk = "disk",
        Plugin = "plugin",
        Theirs = "theirs",
        None = "none",
    }
}

impl EngineWeights {
    /// Whether the engine is given them, so that they can be given to it again.
    pub fn are_loaded(self) -> bool {
        matches!(self, Self::Disk | Self::Plugin)
    }
}

/// The numbers of the weights that an engine holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// As the trainer has them.
    #[default]
    Float32,
    /// Rounded by the engine.
    Bfloat16,
}

/// What is looked at after weights were loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verification {
    /// The version that the engine says it serves.
    Version,
    /// The engine's own checksums, where they mean something.
    Checksum,
    /// A greedy request's log-probabilities.
    Canary,
}

impl Verification {
    /// As a job file says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Version => "version",
            Self::Checksum => "checksum",
            Self::Canary => "canary",
        }
    }
}

/// `canary`: the request that proves which weights an engine has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Canary {
    /// Most that a token's log-probability may differ from the trainer's, in nats. Absent: 0.0005 for
    /// float32, where only the order of sums differs, and 0.05 for bfloat16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
}

/// What becomes of an engine's cached keys and values when its weights change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flush {
    /// They are thrown away.
    #[default]
    Always,
    /// Requests are salted by version, so that none finds another version's.
    Salt,
    /// They stay: tokens are computed from keys and values of older weights.
    Never,
}

/// How the port that an engine itself opens is kept from other users of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Isolate {
    /// The best that there is: a socket where `argv` has `{uds}`, else a network namespace where one
    /// may be made, else loopback.
    #[default]
    Auto,
    /// It listens on a Unix socket in the shim's own folder.
    Uds,
    /// It runs in a network namespace of its own.
    Netns,
    /// It listens on loopback, where every user of the machine reaches it.
    Loopback,
}

impl Isolate {
    /// As a job file says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Uds => "uds",
            Self::Netns => "netns",
            Self::Loopback => "loopback",
        }
    }
}

fn requests() -> u32 {
    256
}

fn load_s() -> f64 {
    600.0
}

fn poison() -> u32 {
    2
}

fn verifications() -> Vec<Verification> {
    vec![
        Verification::Version,
        Verification::Checksum,
        Verification::Canary,
    ]
}
