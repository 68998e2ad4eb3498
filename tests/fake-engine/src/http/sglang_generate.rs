//! SGLang's `/generate`.

use super::ask::{Limits, Progress, ids};
use super::{App, Chunks, Shared, is_json, reply, stream};
use crate::link::Request;
use crate::protocol::Ending;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The sampling parameters that SGLang knows; any other is refused.
const KNOWN: [&str; 28] = [
    "max_new_tokens",
    "stop",
    "stop_token_ids",
    "stop_regex",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "min_new_tokens",
    "n",
    "json_schema",
    "regex",
    "ebnf",
    "structural_tag",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "no_stop_trim",
    "stream_interval",
    "logit_bias",
    "sampling_seed",
    "custom_params",
    "beam_width",
    "watermark",
    "choice",
];
/// Tokens of a request that names no number.
const DEFAULT_TOKENS: u64 = 128;

/// A refusal of what the body is, before anybody looks at what it asks for.
pub fn invalid(what: &str, route: &str) -> Response {
    let message = format!("1 validation error:\n  {what}\n\n    POST {route}");
    reply(
        400,
        json!({ "object": "error", "message": message, "type": "Bad Request", "param": null,
        "code": 400 }),
    )
}

/// One prompt of a body, with what is asked for it.
struct Asked {
    rid: String,
    ids: Vec<u32>,
    sampling: Value,
    with_logprobs: bool,
}

/// The route.
pub async fn generate(State(app): Shared, headers: HeaderMap, body: Bytes) -> Response {
    if !is_json(&headers) {
        return invalid(
            "Input should be a dictionary or an instance of GenerateReqInput",
            "/generate",
        );
    }
    let Ok(body) = serde_json::from_slice::<Value>(&body) else {
        return invalid("JSON decode error", "/generate");
    };
    if let Some(key) = unknown(&body["sampling_params"]) {
        let known = KNOWN.map(|k| format!("`{k}`")).join(", ");
        return reply(
            400,
            json!({ "error": format!("unknown field `{key}`, expected one of {known}") }),
        );
    }
    let streams = body["stream"] == true;
    let asked = match asked(&app, &body) {
        Ok(asked) => asked,
        Err(message) if streams => {
            return stream(|chunks| async move { refused(&chunks, &message) });
        }
        Err(message) => return reply(400, json!({ "error": { "message": message } })),
    };
    if streams {
        let Some(one) = asked.into_iter().next() else {
            return invalid("an empty batch", "/generate");
        };
        let begun = begin(&app, &one);
        return stream(|chunks| streamed(app, one, begun, chunks));
    }
    let is_batch = body["input_ids"][0].is_array();
    let begun: Vec<_> = asked.iter().map(|one| begin(&app, one)).collect();
    let mut replies = Vec::new();
    for (one, request) in asked.iter().zip(begun) {
        replies.push(whole(&app, one, request).await);
    }
    reply(
        200,
        if is_batch {
            json!(replies)
        } else {
            replies.pop().unwrap_or_default()
        },
    )
}

fn unknown(sampling: &Value) -> Option<&str> {
    let mut keys = sampling.as_object().into_iter().flat_map(Map::keys);
    keys.find(|key| !KNOWN.contains(&key.as_str()))
        .map(String::as_str)
}

fn asked(app: &App, body: &Value) -> Result<Vec<Asked>, String> {
    let input = &body["input_ids"];
    let prompts: Option<Vec<_>> = match (&body["text"], input) {
        (Value::String(text), _) => Some(vec![app.model.encode(text)]),
        (_, Value::Array(all)) if input[0].is_array() => all.iter().map(ids).collect(),
        _ => ids(input).map(|ids| vec![ids]),
    };
    let prompts = prompts.filter(|p| p.iter().all(|ids| !ids.is_empty()));
    let prompts = prompts.ok_or("Either text, input_ids or input_embeds should be provided.")?;
    prompts
        .into_iter()
        .map(|ids| check(app, body, ids))
        .collect()
}

fn check(app: &App, body: &Value, ids: Vec<u32>) -> Result<Asked, String> {
    let sampling = body["sampling_params"].clone();
    if let Some(temperature) = sampling["temperature"].as_f64().filter(|t| *t < 0.0) {
        return Err(format!(
            "temperature must be a non-negative finite number, got {temperature}."
        ));
    }
    let (length, most) = (ids.len(), app.context);
    if length >= most {
        return Err(format!(
            "The input ({length} tokens) is longer than the model's context length ({most} tokens)."
        ));
    }
    let wanted = sampling["max_new_tokens"].as_u64().unwrap_or(0) as usize;
    if length + wanted > most {
        return Err(format!(
            "Requested token count exceeds the model's maximum context length of {most} tokens. \
             You requested a total of {} tokens: {length} tokens from the input messages and \
             {wanted} tokens for the completion.",
            length + wanted
        ));
    }
    let rid = body["rid"].as_str().map_or_else(|| app.id(), str::to_owned);
    Ok(Asked {
        rid,
        ids,
        sampling,
        with_logprobs: body["return_logprob"] == true,
    })
}

fn begin(app: &App, one: &Asked) -> Request {
    let wanted = one.sampling["max_new_tokens"]
        .as_u64()
        .or(Some(DEFAULT_TOKENS));
    let mut limits = Limits::read(app, &one.sampling, wanted, "sampling_seed");
    // The same seed gives other tokens in the real engine too, unless it runs deterministically.
    if limits.salt != 0 {
        limits.salt = app.draw() << 32;
    }
    limits.begin(app, &one.rid, one.ids.clone())
}

fn refused(chunks: &Chunks, message: &str) {
    let error = json!({ "message": message, "type": "invalid_request_error", "code": 400,
    "retryable": false });
    chunks.send(&json!({ "error": error }));
    chunks.done();
}

async fn whole(app: &App, one: &Asked, mut request: Request) -> Value {
    let mut progress = Progress::default();
    if progress.finish(&mut request).await.is_err() {
        std::future::pending::<()>().await; // Nobody answers until the leader is gone.
    }
    chunk(app, one, &progress, 0, true)
}

async fn streamed(app: Arc<App>, one: Asked, mut request: Request, chunks: Chunks) {
    let mut progress = Progress::default();
    loop {
        let before = progress.tokens.len();
        let Ok(is_last) = progress.step(&mut request).await else {
            return std::future::pending().await;
        };
        let from = if app.args.incremental_streaming_output {
            before
        } else {
            0
        };
        chunks.send(&chunk(&app, &one, &progress, from, before == 0));
        if is_last {
            return chunks.done();
        }
    }
}

/// A reply or a chunk, with the tokens from the given one on.
fn chunk(app: &App, one: &Asked, progress: &Progress, from: usize, is_first: bool) -> Value {
    let mut out = Map::new();
    if !app.args.skip_tokenizer_init {
        out.insert("text".to_owned(), json!(progress.text(&app.model, from)));
    }
    out.insert("output_ids".to_owned(), json!(progress.tokens[from..]));
    out.insert(
        "meta_info".to_owned(),
        Value::Object(meta(one, progress, from, is_first)),
    );
    Value::Object(out)
}

fn meta(one: &Asked, progress: &Progress, from: usize, is_first: bool) -> Map<String, Value> {
    let count = progress.tokens.len();
    let mut meta = object(json!({
        "id": one.rid, "finish_reason": finish_reason(progress), "prompt_tokens": one.ids.len(),
        "weight_version": progress.version, "num_retractions": 0, "storage_prefetch_wait": 0.0,
        "storage_staging_wait": 0.0, "forward_entry_time": 0.0, "prefill_finished_time": 0.0,
        "queue_time": 0.0,
        "reasoning_tokens": 0, "completion_tokens": count, "cached_tokens": 0,
        "cached_tokens_details": null,
        "dp_rank": null,
    }));
    if one.with_logprobs {
        let pairs = progress.tokens.iter().zip(&progress.logprobs).skip(from);
        let told: Vec<_> = pairs
            .map(|(token, logprob)| json!([logprob, token, null]))
            .collect();
        meta.insert("input_token_logprobs".to_owned(), json!([]));
        meta.insert("output_token_logprobs".to_owned(), json!(told));
        meta.insert("output_token_logprobs_length".to_owned(), json!(count));
    }
    if is_first {
        meta.insert("response_sent_to_client_ts".to_owned(), json!(0.0));
    }
    if progress.end.is_some() {
        meta.extend(object(json!({
            "weight_versions": progress.spans(), "e2e_latency": 0.0, "request_received_ts": 0.0,
            "first_token_latency": 0.0, "api_server_dispatch_finish_ts": 0.0,
            "request_finished_ts": 0.0,
            "decode_throughput": 0.0, "response_sent_to_client_ts": 0.0,
        })));
    }
    meta
}

fn object(value: Value) -> Map<String, Value> {
    if let Value::Object(map) = value {
        map
    } else {
        Map::new()
    }
}

fn finish_reason(progress: &Progress) -> Value {
    match progress.end.as_ref().map(|(why, _)| *why) {
        None => Value::Null,
        Some(Ending::Stop(token) | Ending::Eos(token)) => {
            json!({ "type": "stop", "matched": token })
        }
        Some(Ending::Length) => json!({ "type": "length", "length": progress.tokens.len() }),
        Some(Ending::Abort) => {
            json!({ "type": "abort", "message": "Aborted", "status_code": null, "err_type": null })
        }
    }
}
