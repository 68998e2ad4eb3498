//! What an environment's program and its shim say to each other: one JSON object a line over a Unix socket,
//! in both directions at any time; each line but the first is about one conversation.
//!
//! ```text
//!   program                                     shim
//!   attach ───────────────────────────────────►
//!          ◄─────────────────────────────────── attached: how many conversations at a time
//!          ◄─────────────────────────────────── begin: a conversation's prompt, and what was recorded of it
//!   generate (all tokens so far) ─────────────►
//!          ◄─────────────────────────────────── tokens: what the model said; or refused
//!   finish (the reward), or unable ───────────►
//!          ◄─────────────────────────────────── finished; or cancel: it is somebody else's now
//!          ◄─────────────────────────────────── over: the job is
//! ```
//! A reward is a text, for JSON has no number that is none.

use serde::{Deserialize, Serialize};

/// The protocol's version; a program of another one is refused.
pub const PROTOCOL: u32 = 1;

/// What a program says.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case", deny_unknown_fields)]
pub enum Said {
    /// It is there.
    Attach {
        /// Must be [`PROTOCOL`].
        protocol: u32,
        /// Its process, for messages.
        pid: u32,
        /// Its package's version, for messages.
        package: String,
    },
    /// The model is to go on.
    Generate {
        /// The conversation.
        conversation: u64,
        /// The prompt, what the model said, and what was added in between: all of it.
        ids: Vec<u32>,
        /// Tokens at most; absent: the job's.
        #[serde(default)]
        max_new_tokens: Option<usize>,
        /// Absent: the job's.
        #[serde(default)]
        temperature: Option<f64>,
        /// Tokens that end it; absent: the model's ends of a sequence.
        #[serde(default)]
        stop: Option<Vec<i64>>,
        /// What was called since the model last spoke.
        #[serde(default)]
        calls: Vec<Recorded>,
    },
    /// The conversation is over.
    Finish {
        /// The conversation.
        conversation: u64,
        /// A finite number as a text.
        reward: String,
        /// What the model answered, for people who look.
        #[serde(default)]
        answer: String,
    },
    /// It could not be held, by no doing of the model's: no sample.
    Unable {
        /// The conversation.
        conversation: u64,
        /// Why.
        reason: String,
    },
}

impl Said {
    /// Which conversation it is about.
    pub fn conversation(&self) -> Option<u64> {
        match self {
            Self::Attach { .. } => None,
            Self::Generate { conversation, .. }
            | Self::Finish { conversation, .. }
            | Self::Unable { conversation, .. } => Some(*conversation),
        }
    }
}

/// What a tool said, which is not called again for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// The tool's name.
    pub name: String,
    /// What it was given, as JSON.
    pub call: String,
    /// What it said, as JSON.
    pub result: String,
}

/// What a shim tells.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "tell", rename_all = "snake_case")]
pub enum Told {
    /// Who the program is.
    Attached {
        /// The worker's index.
        index: u32,
        /// The job's name.
        job: String,
        /// The folder of the initial weights.
        model: String,
        /// The job's `tokenizer.json`.
        tokenizer: String,
        /// Conversations that it is given at a time.
        concurrency: u32,
    },
    /// A conversation begins, or goes on from what is stored of it.
    Begin {
        /// Names it from here on.
        conversation: u64,
        /// The dataset's prompt.
        prompt: String,
        /// The dataset's answer.
        answer: String,
        /// What randomness of its own may derive from: the same in each attempt.
        seed: u64,
        /// What tools said in an earlier attempt, in order.
        calls: Vec<Recorded>,
    },
    /// What the model said.
    Tokens {
        /// The conversation.
        conversation: u64,
        /// The tokens.
        ids: Vec<u32>,
        /// Natural logarithm of each one's probability.
        logprobs: Vec<f32>,
        /// Which weights made which tokens: version, first token, one past the last.
        versions: Vec<(u64, usize, usize)>,
        /// `stop` or `length`.
        finish: &'static str,
    },
    /// What was asked cannot be done; the sentence says why.
    Refused {
        /// The conversation.
        conversation: u64,
        /// The sentence.
        reason: String,
    },
    /// It is on record with its reward.
    Finished {
        /// The conversation.
        conversation: u64,
    },
    /// Nobody wants the conversation any more.
    Cancel {
        /// The conversation.
        conversation: u64,
    },
    /// The job is over.
    Over,
    /// The program cannot be spoken to.
    Error {
        /// Why.
        reason: String,
    },
}
