//! Chunks and replies of vLLM's token API; its streams are deltas.

use serde::Deserialize;
use serde_json::Value;

use super::sglang::WireSpan;
use super::{Chunk, Event, Finish, Span, failed};
use crate::error::Refused;

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    error: Option<Value>,
    /// Empty in a chunk that only counts.
    #[serde(default)]
    choices: Vec<Choice>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    token_ids: Option<Vec<u32>>,
    #[serde(default)]
    logprobs: Option<Logprobs>,
    #[serde(default)]
    finish_reason: Option<String>,
    #[serde(default)]
    weight_versions: Option<Vec<WireSpan>>,
}

#[derive(Deserialize)]
struct Logprobs {
    #[serde(default)]
    content: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
struct Entry {
    token_id: u32,
    logprob: f32,
}

pub(super) fn read(data: &str) -> Result<Chunk, Event> {
    let wire: Wire = serde_json::from_str(data)
        .map_err(|error| Event::elsewhere(format!("a chunk is unreadable: {error}")))?;
    if let Some(error) = wire.error {
        return Err(failed(&error));
    }
    let Some(choice) = wire.choices.into_iter().next() else {
        return Ok(Chunk::default());
    };
    let logprobs = choice.logprobs.and_then(|logprobs| logprobs.content);
    let logprobs = logprobs.unwrap_or_default().into_iter();
    let spans = choice.weight_versions;
    Ok(Chunk {
        ids: choice.token_ids.unwrap_or_default(),
        logprobs: logprobs
            .map(|entry| (entry.logprob, entry.token_id))
            .collect(),
        completion_tokens: None,
        version: None,
        finish: choice.finish_reason.as_deref().map(finish),
        spans: spans.map(|spans| spans.into_iter().map(Span::from).collect()),
    })
}

fn finish(reason: &str) -> Finish {
    match reason {
        "stop" => Finish::Stop,
        "length" => Finish::Length,
        other => Finish::Abort(Refused {
            status: None,
            client: false,
            message: other.to_owned(),
        }),
    }
}
