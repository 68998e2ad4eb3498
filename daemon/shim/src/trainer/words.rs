//! What a trainer's program and its shim say to each other: one JSON object a line over a Unix socket,
//! each of the program's answered by one of the shim's before the next is asked.
//!
//! ```text
//!   program                                    shim
//!   attach ──────────────────────────────────► attached: who it is in the gang
//!   restore ─────────────────────────────────► state: a step, and where its tensors lie
//!   restored ────────────────────────────────► done
//!   publish ─────────────────────────────────► write: which version, and where its tensors go
//!   published ───────────────────────────────► done
//!   batch ───────────────────────────────────► batch: a step, and where its samples lie; or over
//!   figures (loss, norm, the state's layout) ► write: where the state's tensors go
//!   written ─────────────────────────────────► done, once the step is on record
//! ```
//! Bytes of tensors never pass here: both have the same files in shared memory mapped. Numbers that may be
//! infinite or none at all are texts, for JSON has no such numbers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use robust_shared::job::Level;
use serde::{Deserialize, Serialize};

/// The protocol's version; a program of another one is refused.
pub const PROTOCOL: u32 = 3;

/// What a program asks.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ask {
    /// It is there.
    Attach {
        /// Must be [`PROTOCOL`].
        protocol: u32,
        /// Its process, for messages.
        pid: u32,
        /// Its package's version, for messages.
        package: String,
    },
    /// Which state it is to take up; answered once the daemon has said so.
    Restore,
    /// It took the state up, or says why it could not.
    Restored {
        /// The state's step.
        step: u64,
        /// Why not.
        #[serde(default)]
        error: Option<String>,
    },
    /// The next batch; answered once there is one.
    Batch,
    /// The optimiser's step is done: its figures, and what the state consists of.
    Figures {
        /// The step.
        step: u64,
        /// Numbers as texts, by name.
        figures: BTreeMap<String, String>,
        /// The tensors of the rank's state, in the order in which they will lie.
        tensors: Vec<Tensor>,
    },
    /// The state's bytes lie where they were to go.
    Written {
        /// The step.
        step: u64,
    },
    /// A version of the weights is to be published.
    Publish {
        /// The step that it is the result of. Absent: that of the step that the program is at, or of the
        /// next one, which is over with it; the answer says which.
        #[serde(default)]
        version: Option<u64>,
        /// Its tensors, float32, by Hugging Face name.
        tensors: Vec<Tensor>,
    },
    /// The version's bytes lie where they were to go.
    Published {
        /// The version.
        version: u64,
        /// What it answers to the fixed prompt.
        #[serde(default)]
        canary: Option<CanaryAnswer>,
    },
}

/// A tensor's name, dtype (as safetensors has it: `F32`, `BF16`, `I64`) and shape.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor {
    /// Unique among its fellows.
    pub name: String,
    /// As safetensors has it.
    pub dtype: String,
    /// Row-major.
    pub shape: Vec<u64>,
}

/// Greedy tokens after the fixed prompt.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CanaryAnswer {
    /// The tokens.
    pub ids: Vec<u32>,
    /// Natural logarithm of each one's probability.
    pub logprobs: Vec<f32>,
    /// How much less likely the second token was.
    pub margins: Vec<f32>,
}

/// What a shim answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// Who the program is.
    Attached(Box<Attached>),
    /// The state to take up; of step 0 there is none but the model folder's weights.
    State {
        /// Its step.
        step: u64,
        /// Where its tensors lie: this rank's, or those of every rank that wrote it where any number of
        /// ranks can take it up. None: there is nothing to take up.
        places: Vec<Place>,
    },
    /// Nothing more is to be said.
    Done,
    /// A batch.
    Batch {
        /// The step that it is for.
        step: u64,
        /// A safetensors file with this rank's samples.
        path: PathBuf,
        /// Trainable tokens of the whole batch, of all ranks.
        batch_tokens: u64,
    },
    /// Where tensors are to be written.
    Write {
        /// The step or version.
        of: u64,
        /// The place.
        place: Place,
    },
    /// The job is over for this rank.
    Over,
    /// It cannot be done; the sentence says why, and what to do.
    Error {
        /// The sentence.
        reason: String,
    },
}

/// Who a program is, and what it needs to know.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Attached {
    /// Its rank.
    pub rank: u32,
    /// Ranks of the gang.
    pub world_size: u32,
    /// Its number among the ranks of its host.
    pub local_rank: u32,
    /// The gang's fencing number.
    pub generation: u64,
    /// Its own.
    pub incarnation: u64,
    /// The job's name.
    pub job: String,
    /// The folder of the initial weights.
    pub model: PathBuf,
    /// The page for its phases.
    pub page: PathBuf,
    /// What published weights must prove; none: nothing.
    pub canary: Option<CanaryPrompt>,
    /// What of the package it uses, as the job file says.
    pub level: Level,
    /// Whether its state is kept for it.
    pub keeps_state: bool,
    /// Phases of its own, besides those that the rules know.
    pub phases: Vec<String>,
    /// Whether it is kept so that another number of ranks can take it up.
    pub reshards: bool,
}

/// What is to be answered greedily, by the weights that are published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CanaryPrompt {
    /// The prompt's tokens.
    pub prompt_ids: Vec<u32>,
    /// Tokens to generate.
    pub tokens: u32,
}

/// Tensors in a file that both have mapped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file.
    pub path: PathBuf,
    /// Where the first tensor begins in it.
    pub data: u64,
    /// The tensors, and where each lies from there on.
    pub tensors: Vec<Placed>,
}

/// A tensor that has a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// Its name.
    pub name: String,
    /// As safetensors has it.
    pub dtype: String,
    /// Row-major.
    pub shape: Vec<u64>,
    /// Its first byte.
    pub start: u64,
    /// The byte after its last.
    pub end: u64,
}
