//! vLLM's `/inference/v1/generate`.

use super::ask::{Limits, Progress, ids};
use super::{App, Chunks, Shared, is_json, reply, stream};
use crate::link::Request;
use crate::protocol::{Dialect, Ending};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;

/// What is said of everything that is asked after the engine died.
const DEAD: &str = "EngineCore encountered an issue. See stack trace (above) for the root cause.";

/// The body of an error.
pub fn error(kind: &str, code: u16, param: Value, message: &str) -> Value {
    json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
}

/// A refusal of what the body is, as a reply.
pub fn invalid(param: Value, what: &str) -> Response {
    reply(400, invalid_body(param, what))
}

fn invalid_body(param: Value, what: &str) -> Value {
    error(
        "Bad Request",
        400,
        param,
        &format!("1 validation error:\n  {what}"),
    )
}

/// What happens to a request whose engine is dead.
pub fn dead() -> Value {
    error("InternalServerError", 500, Value::Null, DEAD)
}

/// A refusal of what is asked for: the parameter, if one is to blame, and the words.
pub type Refusal = (Value, String);

/// What a request asks for.
struct Asked {
    id: String,
    ids: Vec<u32>,
    with_logprobs: bool,
    with_usage: bool,
}

/// The route.
pub async fn generate(State(app): Shared, headers: HeaderMap, body: Bytes) -> Response {
    let body = match parse(&headers, &body) {
        Ok(body) => body,
        Err(refusal) => return reply(400, refusal),
    };
    let ids = match ids(&body["token_ids"]) {
        None => {
            return invalid(
                json!("body.token_ids"),
                "{'type': 'missing', 'msg': 'Field required'}",
            );
        }
        Some(ids) if ids.is_empty() => {
            return invalid(
                json!("body.token_ids"),
                "{'type': 'too_short', 'loc': 'body.token_ids'}",
            );
        }
        Some(ids) => ids,
    };
    let (sampling, streams) = (&body["sampling_params"], body["stream"] == true);
    if let Err((param, message)) = check(&app, sampling, &ids) {
        let refusal = error("BadRequestError", 400, param, &message);
        return if streams {
            stream(|chunks| async move { failed(&chunks, &refusal) })
        } else {
            reply(400, refusal)
        };
    }
    if app.is_dead() {
        return reply(500, dead());
    }
    let id = body["request_id"]
        .as_str()
        .map_or_else(|| app.id()[..16].to_owned(), str::to_owned);
    let asked = Asked {
        id: format!("generate-tokens-{id}"),
        with_logprobs: !sampling["logprobs"].is_null(),
        with_usage: body["stream_options"]["include_usage"] == true,
        ids,
    };
    let limits = Limits::read(&app, sampling, sampling["max_tokens"].as_u64(), "seed");
    let request = limits.begin(&app, &asked.id, asked.ids.clone());
    if streams {
        return stream(|chunks| streamed(app, asked, request, chunks));
    }
    whole(&app, &asked, request).await
}

/// The body as JSON, or the body of a refusal.
pub fn parse(headers: &HeaderMap, body: &Bytes) -> Result<Value, Value> {
    if !is_json(headers) {
        return Err(invalid_body(
            Value::Null,
            "Unsupported Media Type: Only 'application/json' is allowed",
        ));
    }
    let wrong = |_| {
        invalid_body(
            json!("body.0"),
            "{'type': 'json_invalid', 'msg': 'JSON decode error'}",
        )
    };
    serde_json::from_slice(body).map_err(wrong)
}

/// What is looked up before the worker hears of a request; token ids by vLLM only.
pub fn check(app: &App, sampling: &Value, ids: &[u32]) -> Result<(), Refusal> {
    if let Some(temperature) = sampling["temperature"].as_f64().filter(|t| *t < 0.0) {
        let message = format!(
            "temperature must be non-negative, got {temperature:?}. (parameter=temperature,
            value={temperature:?})"
        );
        return Err((json!("temperature"), message));
    }
    let looks = app.boot.dialect == Dialect::Vllm;
    if let Some(outside) = ids.iter().find(|id| looks && **id >= app.model.vocab) {
        return Err((
            Value::Null,
            format!("Token id {outside} is out of vocabulary"),
        ));
    }
    if ids.len() >= app.context {
        let message = format!(
            "The decoder prompt (length {}) is longer than the maximum model length of {}. Make \
             sure that `max_model_len` is no smaller than the number of text tokens.",
            ids.len(),
            app.context
        );
        return Err((Value::Null, message));
    }
    Ok(())
}

/// A stream that ends with an error, with status 200.
pub fn failed(chunks: &Chunks, error: &Value) {
    chunks.send(error);
    chunks.done();
}

async fn whole(app: &App, asked: &Asked, mut request: Request) -> Response {
    let mut progress = Progress::default();
    if progress.finish(&mut request).await.is_err() {
        return reply(500, dead());
    }
    let mut usage = usage(asked.ids.len(), &progress);
    usage["prompt_tokens_details"] = Value::Null;
    usage["completion_tokens_details"] = Value::Null;
    reply(
        200,
        json!({
            "request_id": asked.id, "model": app.served(), "created": 0, "usage": usage,
            "prompt_logprobs": null,
            "prompt_token_id_logprobs": null, "prompt_token_ids": null, "mm_placeholders": null,
            "metrics": null,
            "kv_transfer_params": null, "ec_transfer_params": null, "output_mode": "tokens",
            "choices": [choice(asked, &progress, 0)],
        }),
    )
}

async fn streamed(_app: Arc<App>, asked: Asked, mut request: Request, chunks: Chunks) {
    let mut progress = Progress::default();
    let chunk = |usage: Value, choices: Value| {
        json!({ "request_id": asked.id, "usage": usage,
    "output_mode": "tokens", "choices": choices })
    };
    loop {
        let from = progress.tokens.len();
        let Ok(is_last) = progress.step(&mut request).await else {
            return failed(&chunks, &dead());
        };
        chunks.send(&chunk(
            Value::Null,
            json!([choice(&asked, &progress, from)]),
        ));
        if is_last {
            break;
        }
    }
    if asked.with_usage {
        chunks.send(&chunk(usage(asked.ids.len(), &progress), json!([])));
    }
    chunks.done();
}

/// How many tokens went in and came out.
pub fn usage(prompt: usize, progress: &Progress) -> Value {
    let made = progress.tokens.len();
    json!({ "prompt_tokens": prompt, "total_tokens": prompt + made, "completion_tokens": made })
}

/// Why a choice ended, as the two fields that say so.
pub fn finish(progress: &Progress) -> (Value, Value) {
    match progress.end.as_ref().map(|(why, _)| *why) {
        None => (Value::Null, Value::Null),
        Some(Ending::Stop(token)) => (json!("stop"), json!(token)),
        Some(Ending::Eos(_)) => (json!("stop"), Value::Null),
        Some(Ending::Length) => (json!("length"), Value::Null),
        Some(Ending::Abort) => (json!("abort"), Value::Null),
    }
}

/// The one choice, with the tokens from the given one on.
fn choice(asked: &Asked, progress: &Progress, from: usize) -> Value {
    let (finish_reason, stop_reason) = finish(progress);
    let pairs = progress.tokens.iter().zip(&progress.logprobs).skip(from);
    let content: Vec<_> = pairs
        .map(|(token, logprob)| json!({ "token_id": token, "logprob": logprob, "rank": 1 }))
        .map(|mut one| {
            one["top_logprobs"] = json!([one.clone()]);
            one
        })
        .collect();
    let logprobs = if asked.with_logprobs {
        json!({ "content": content })
    } else {
        Value::Null
    };
    json!({
        "index": 0, "finish_reason": finish_reason, "stop_reason": stop_reason,
        "token_ids": progress.tokens[from..], "routed_experts": null, "sampling_mask": null,
        "weight_versions": progress.spans(), "logprobs": logprobs,
    })
}
