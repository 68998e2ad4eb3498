//! What the leader and its children say to each other: one JSON line a message, over pipes.

use crate::quirks::Quirks;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;

/// What kind of engine is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// SGLang 0.5.23.
    Sglang,
    /// vLLM 0.32.0.
    Vllm,
}

/// What a child is told when it is started.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Boot {
    /// What kind of engine is played.
    pub dialect: Dialect,
    /// The folder of the first weights.
    pub model: PathBuf,
    /// Tokens that a request gets in a second.
    pub tokens_per_s: f64,
    /// How many requests get tokens at the same time.
    pub max_running: usize,
    /// What the times of the real engines are multiplied with.
    pub time_scale: f64,
    /// Faults.
    pub quirks: Quirks,
    /// Files in shared memory that every process of the tree maps.
    pub shared: Vec<PathBuf>,
}

/// From the leader to the process that makes tokens.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Command {
    /// A request begins.
    Generate(Generate),
    /// Requests end, all of them without keys.
    Abort { keys: Option<Vec<u64>> },
    /// Something that is answered once.
    Call { call: u64, operation: Operation },
}

/// A request for tokens.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Generate {
    /// The leader's name for it.
    pub key: u64,
    /// The prompt.
    pub ids: Vec<u32>,
    /// Tokens at most.
    pub max_tokens: u32,
    /// Tokens that end it.
    pub stop: Vec<u32>,
    /// The model's own end of sequence, unless it is to be ignored.
    pub eos: Option<u32>,
    /// 0 for a greedy choice.
    pub salt: u64,
}

/// A call of the leader.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Operation {
    /// No request gets a token until `Resume`.
    Pause { mode: PauseMode },
    /// Requests go on.
    Resume,
    /// Takes the weights of a folder.
    Load { path: PathBuf },
    /// What the weights are called from now on.
    SetVersion { version: String },
    /// The digests of the weights in memory.
    Checksums,
    /// Forgets keys and values of prompts.
    Flush,
    /// Gives memory back; nothing may run. `keeps`: with a copy of the weights.
    Sleep { tags: Vec<String>, keeps: bool },
    /// Takes memory again; the answer is whether all of it is there.
    Wake { tags: Vec<String> },
    /// Answers.
    Ping,
    /// An exception ends the process.
    Raise,
}

/// What a pause does to the requests under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseMode {
    /// They end.
    Abort,
    /// They are waited for.
    Wait,
    /// They stay as they are.
    Freeze,
}

/// From the process that makes tokens to the leader.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Report {
    /// A request has a token more, or ends, or both.
    Step(Step),
    /// The answer to a call.
    Done {
        call: u64,
        result: Result<Value, String>,
    },
    /// A child of the reporting process died.
    Dead { name: String },
}

/// What a request got.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Step {
    /// The request.
    pub key: u64,
    /// A token and its log probability.
    pub token: Option<(u32, f64)>,
    /// What the weights were called.
    pub version: String,
    /// How it ended, with the spans of weights' versions.
    pub end: Option<(Ending, Vec<Span>)>,
}

/// Why a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// By one of its stop tokens.
    Stop(u32),
    /// By the model's end of sequence.
    Eos(u32),
    /// By its number of tokens.
    Length,
    /// By a client's wish.
    Abort,
}

/// Tokens made under one version of the weights, `end` not counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// What the weights were called.
    pub version: String,
    /// The first token.
    pub start: u32,
    /// The one behind the last token.
    pub end: u32,
}
