//! `/v1/completions`, in the shape of either dialect.

use super::ask::{Limits, Progress, ids};
use super::vllm_generate::{check, dead, error, failed, finish, parse, usage};
use super::{App, Chunks, Shared, reply, stream};
use crate::link::Request;
use crate::protocol::Dialect;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Value, json};
use std::sync::Arc;

/// Tokens of a request that names no number, as OpenAI has it.
const DEFAULT_TOKENS: u64 = 16;

struct Asked {
    id: String,
    model: String,
    ids: Vec<u32>,
    with_logprobs: bool,
    with_ids: bool,
}

/// vLLM's, which knows the names of its models.
pub async fn vllm(State(app): Shared, headers: HeaderMap, body: Bytes) -> Response {
    let body = match parse(&headers, &body) {
        Ok(body) => body,
        Err(refusal) => return reply(400, refusal),
    };
    let (asked, served) = (body["model"].as_str().unwrap_or_default(), app.served());
    if !asked.is_empty() && asked != served {
        let message = format!("The model `{asked}` does not exist. Valid aliases: {served}.");
        return reply(404, error("NotFoundError", 404, json!("model"), &message));
    }
    if app.is_dead() {
        return reply(500, dead());
    }
    complete(app, &body, "cmpl-").await
}

/// SGLang's, which takes any.
pub async fn sglang(State(app): Shared, headers: HeaderMap, body: Bytes) -> Response {
    match parse(&headers, &body) {
        Ok(body) => complete(app, &body, "").await,
        Err(refusal) => reply(400, refusal),
    }
}

async fn complete(app: Arc<App>, body: &Value, prefix: &str) -> Response {
    let prompt = match &body["prompt"] {
        Value::String(text) => Some(app.model.encode(text)),
        other => ids(other),
    };
    let ids = prompt.unwrap_or_default();
    if let Err((param, message)) = check(&app, body, &ids) {
        return reply(400, error("BadRequestError", 400, param, &message));
    }
    let asked = Asked {
        id: format!(
            "{prefix}{}",
            &app.id()[..if prefix.is_empty() { 32 } else { 16 }]
        ),
        model: body["model"]
            .as_str()
            .map_or_else(|| app.served(), str::to_owned),
        with_logprobs: !body["logprobs"].is_null(),
        with_ids: body["return_token_ids"] == true,
        ids,
    };
    let wanted = body["max_tokens"].as_u64().or(Some(DEFAULT_TOKENS));
    let request =
        Limits::read(&app, body, wanted, "seed").begin(&app, &asked.id, asked.ids.clone());
    if body["stream"] == true {
        return stream(|chunks| streamed(app, asked, request, chunks));
    }
    whole(&app, &asked, request).await
}

async fn whole(app: &App, asked: &Asked, mut request: Request) -> Response {
    let mut progress = Progress::default();
    if progress.finish(&mut request).await.is_err() {
        return match app.boot.dialect {
            Dialect::Vllm => reply(500, dead()),
            Dialect::Sglang => std::future::pending().await,
        };
    }
    let mut body = head(asked, choice(app, asked, &progress, 0));
    body["usage"] = usage(asked.ids.len(), &progress);
    body["usage"]["prompt_tokens_details"] = Value::Null;
    body["usage"]["completion_tokens_details"] = Value::Null;
    match app.boot.dialect {
        Dialect::Vllm => {
            body["choices"][0]["prompt_logprobs"] = Value::Null;
            body["choices"][0]["routed_experts"] = Value::Null;
            for key in [
                "service_tier",
                "kv_transfer_params",
                "ec_transfer_params",
                "metrics",
            ] {
                body[key] = Value::Null;
            }
            body["system_fingerprint"] = json!("vllm-0.32.0");
        }
        Dialect::Sglang => {
            body["usage"]["reasoning_tokens"] = json!(0);
            body["metadata"] =
                json!({ "weight_version": progress.version, "weight_versions": progress.spans() });
        }
    }
    reply(200, body)
}

async fn streamed(app: Arc<App>, asked: Asked, mut request: Request, chunks: Chunks) {
    let mut progress = Progress::default();
    loop {
        let from = progress.tokens.len();
        let is_last = match (progress.step(&mut request).await, app.boot.dialect) {
            (Ok(is_last), _) => is_last,
            (Err(_), Dialect::Vllm) => return failed(&chunks, &dead()),
            (Err(_), Dialect::Sglang) => return std::future::pending().await,
        };
        let mut choice = choice(&app, &asked, &progress, from);
        // vLLM has the key in every chunk and the prompt in the first, SGLang has both there only.
        if from > 0 && asked.with_ids {
            match (app.boot.dialect, choice.as_object_mut()) {
                (Dialect::Sglang, Some(fields)) => drop(fields.remove("prompt_token_ids")),
                _ => choice["prompt_token_ids"] = Value::Null,
            }
        }
        let mut chunk = head(&asked, choice);
        match app.boot.dialect {
            Dialect::Sglang => chunk["usage"] = Value::Null,
            Dialect::Vllm if is_last => chunk["system_fingerprint"] = json!("vllm-0.32.0"),
            Dialect::Vllm => {}
        }
        chunks.send(&chunk);
        if is_last {
            return chunks.done();
        }
    }
}

fn head(asked: &Asked, choice: Value) -> Value {
    json!({
        "id": asked.id, "object": "text_completion", "created": 0, "model": asked.model,
        "choices": [choice],
    })
}

fn choice(app: &App, asked: &Asked, progress: &Progress, from: usize) -> Value {
    let (finish_reason, stop) = finish(progress);
    let stop_key = if app.boot.dialect == Dialect::Vllm {
        "stop_reason"
    } else {
        "matched_stop"
    };
    let mut choice = json!({
        "index": 0, "text": progress.text(&app.model, from), "finish_reason": finish_reason,
        stop_key: stop,
        "logprobs": if asked.with_logprobs { logprobs(app, progress, from) } else { Value::Null },
    });
    if asked.with_ids {
        choice["token_ids"] = json!(progress.tokens[from..]);
        choice["prompt_token_ids"] = json!(asked.ids);
    }
    choice
}

fn logprobs(app: &App, progress: &Progress, from: usize) -> Value {
    let tokens: Vec<_> = progress.tokens[from..]
        .iter()
        .map(|token| app.model.text(*token))
        .collect();
    let values = &progress.logprobs[from..];
    let offset = |at: usize| match app.boot.dialect {
        Dialect::Vllm => i64::try_from(progress.text(&app.model, 0).len())
            .unwrap_or(0)
            .min((from + at) as i64),
        Dialect::Sglang => -1,
    };
    json!({
        "text_offset": (0..tokens.len()).map(offset).collect::<Vec<_>>(),
        "token_logprobs": values,
        "tokens": tokens,
        "top_logprobs": tokens.iter().zip(values).map(|(t,
        v)| json!({ *t: v })).collect::<Vec<_>>(),
    })
}
