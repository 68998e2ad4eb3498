//! What an engine says while it generates, as events.
//!
//! ```text
//!             chunk with new tokens ─► Tokens ┐
//!   open ─────┤         ▲────────────────────┘
//!             ├─ chunk with its finish ─► (Tokens) End ──► ended: nothing more is said
//!             └─ error, nonsense, [DONE] or closed too early ─► Failed ──► ended
//! ```
//! SGLang repeats everything so far in each chunk, or sends deltas; `completion_tokens` tells the
//! two apart, so a server's flag need not be known (C-2).

mod sglang;
mod taken;
mod vllm;

use crate::dialect::{Dialect, Kind};
use crate::error::{Refused, is_the_clients};
use crate::label::Label;
use crate::sse::Lines;
use taken::Taken;

/// What a stream's last event says instead of a chunk.
const DONE: &str = "[DONE]";

/// Consecutive tokens of a reply that one weight version made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The version.
    pub version: Label,
    /// The first token's place in the reply.
    pub start: usize,
    /// The place after the last token.
    pub end: usize,
}

/// Why a reply ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// A stop token, or the model's end of sequence.
    Stop,
    /// A bound on length.
    Length,
    /// Somebody ended it, or the engine gave it up (C-5).
    Abort(Refused),
}

/// What a stream says.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// New tokens.
    Tokens {
        /// The tokens.
        ids: Vec<u32>,
        /// Their logprobs: as many, or none when they were not asked for.
        logprobs: Vec<f32>,
        /// The weights that were served when the chunk was sent, where it says so; some of its
        /// tokens may be of the version before.
        version: Option<Label>,
    },
    /// The reply is complete.
    End {
        /// Why it ended.
        finish: Finish,
        /// Which weights made which tokens, for all of them: it overrides what the chunks said
        /// (C-4). None from engines that do not say.
        spans: Option<Vec<Span>>,
    },
    /// The reply broke; the tokens before it stand.
    Failed {
        /// The status that the error names.
        code: Option<u16>,
        /// What was said.
        message: String,
        /// Whether another engine may do.
        retryable: bool,
    },
}

impl Event {
    fn elsewhere(message: impl ToString) -> Self {
        Event::Failed {
            code: None,
            message: message.to_string(),
            retryable: true,
        }
    }
}

/// Reads one reply, streamed or whole.
#[derive(Debug)]
pub struct Stream {
    kind: Kind,
    lines: Lines,
    taken: Taken,
    ended: bool,
}

impl Stream {
    /// A reply that begins; `logprobs` is whether they were asked for.
    pub fn new(dialect: &Dialect, logprobs: bool) -> Self {
        Self {
            kind: dialect.kind(),
            lines: Lines::default(),
            taken: Taken::new(logprobs, dialect.kind() == Kind::Sglang),
            ended: false,
        }
    }

    /// What a reply says that came in one piece.
    pub fn whole(dialect: &Dialect, logprobs: bool, body: &str) -> Vec<Event> {
        let (mut stream, mut events) = (Self::new(dialect, logprobs), Vec::new());
        stream.take(body, &mut events);
        events.extend(stream.closed());
        events
    }

    /// What these bytes of the reply say; nothing once it has ended.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
        let mut events = Vec::new();
        match self.lines.feed(bytes) {
            Ok(data) => data.iter().for_each(|data| self.take(data, &mut events)),
            Err(error) => self.fail(Event::elsewhere(error), &mut events),
        }
        events
    }

    /// What it means that no more bytes come: a failure, unless the reply had ended.
    pub fn closed(&mut self) -> Option<Event> {
        let early = !std::mem::replace(&mut self.ended, true);
        early.then(|| Event::elsewhere("the stream ended before the reply did"))
    }

    /// Whether the reply ended or failed.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// How many tokens came.
    pub fn tokens(&self) -> usize {
        self.taken.len()
    }

    fn take(&mut self, data: &str, events: &mut Vec<Event>) {
        if self.ended {
            return;
        }
        if data == DONE {
            events.extend(self.closed());
            return;
        }
        let chunk = match self.kind {
            Kind::Sglang | Kind::Robust => sglang::read(data),
            Kind::Vllm => vllm::read(data),
        };
        let said = chunk.and_then(|chunk| self.taken.chunk(chunk));
        match said {
            Ok(said) => {
                self.ended = said.iter().any(|event| matches!(event, Event::End { .. }));
                events.extend(said);
            }
            Err(failed) => self.fail(failed, events),
        }
    }

    fn fail(&mut self, failed: Event, events: &mut Vec<Event>) {
        if !self.ended {
            self.ended = true;
            events.push(failed);
        }
    }
}

/// A chunk, whichever engine sent it.
#[derive(Debug, Default)]
struct Chunk {
    ids: Vec<u32>,
    /// Each with the token it belongs to.
    logprobs: Vec<(f32, u32)>,
    /// How many tokens the reply has with this chunk, where it says so.
    completion_tokens: Option<usize>,
    version: Option<Label>,
    finish: Option<Finish>,
    spans: Option<Vec<Span>>,
}

/// An error that stands where a chunk should (C-6).
fn failed(error: &serde_json::Value) -> Event {
    let code = match &error["code"] {
        serde_json::Value::String(text) => text.parse().ok(),
        code => code.as_u64().and_then(|code| u16::try_from(code).ok()),
    };
    let message = error["message"].as_str().or(error.as_str());
    // What says that it may be tried again may be; what denies it says so of this engine.
    let again = error["retryable"].as_bool().unwrap_or(false);
    Event::Failed {
        code,
        message: message.unwrap_or("an error without a message").to_owned(),
        retryable: again || !code.is_some_and(is_the_clients),
    }
}
