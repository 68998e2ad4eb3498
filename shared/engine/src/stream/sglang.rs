//! Chunks and replies of SGLang and of the built-in rollout.

use serde::Deserialize;
use serde_json::Value;

use super::{Chunk, Event, Finish, Span, failed};
use crate::error::Refused;
use crate::label::Label;

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    error: Option<Value>,
    #[serde(default)]
    output_ids: Vec<u32>,
    #[serde(default)]
    meta_info: Meta,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Meta {
    finish_reason: Option<Value>,
    weight_version: Option<Label>,
    weight_versions: Option<Vec<WireSpan>>,
    completion_tokens: Option<usize>,
    output_token_logprobs: Option<Vec<(f32, u32, Value)>>,
}

/// A span as both engines write it.
#[derive(Deserialize)]
pub(super) struct WireSpan {
    version: Label,
    start: usize,
    end: usize,
}

impl From<WireSpan> for Span {
    fn from(span: WireSpan) -> Self {
        let WireSpan {
            version,
            start,
            end,
        } = span;
        Span {
            version,
            start,
            end,
        }
    }
}

pub(super) fn read(data: &str) -> Result<Chunk, Event> {
    let wire: Wire = serde_json::from_str(data)
        .map_err(|error| Event::elsewhere(format!("a chunk is unreadable: {error}")))?;
    if let Some(error) = wire.error {
        return Err(failed(&error));
    }
    let meta = wire.meta_info;
    let spans = meta.weight_versions;
    let logprobs = meta.output_token_logprobs.unwrap_or_default();
    Ok(Chunk {
        ids: wire.output_ids,
        logprobs: logprobs
            .into_iter()
            .map(|entry| (entry.0, entry.1))
            .collect(),
        completion_tokens: meta.completion_tokens,
        version: meta.weight_version,
        finish: meta.finish_reason.as_ref().map(finish),
        spans: spans.map(|spans| spans.into_iter().map(Span::from).collect()),
    })
}

fn finish(reason: &Value) -> Finish {
    match reason["type"].as_str().or(reason.as_str()) {
        Some("stop") => Finish::Stop,
        Some("length") => Finish::Length,
        kind => {
            let status = reason["status_code"].as_u64();
            let status = status.and_then(|status| u16::try_from(status).ok());
            let message = reason["message"].as_str().or(kind);
            Finish::Abort(Refused {
                status,
                client: status.is_some_and(crate::error::is_the_clients),
                message: message.unwrap_or("no reason given").to_owned(),
            })
        }
    }
}
