//! SGLang's control routes for an engine that has others: the daemon pauses hybrid engines by them, and
//! our agents end their requests.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use robust_engine::serve::{CONTINUED, PAUSED, Refusal};
use robust_engine::{Call, Kind, PauseMode};
use serde_json::Value;

use super::{Failure, Front, Shared};
use crate::state::State as Engine;

/// How long the engine may take to pause: it may wait for its requests.
const PAUSE: Duration = Duration::from_secs(60);

pub(super) async fn on_pause(State(front): Shared, body: Bytes) -> Result<Response, Failure> {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let word = body["mode"].as_str();
    let mode = PauseMode::from_word(Kind::Robust, word)
        .ok_or_else(|| Refusal::bad(format!("mode {word:?} is no way to pause")))?;
    // vLLM has nothing between ending requests and keeping them.
    let mode = match mode {
        PauseMode::Retract => PauseMode::Keep,
        other => other,
    };
    let call = front.dialect()?.pause(mode).map_err(Refusal::bad)?;
    // The door closes first: who asks a paused engine waits without end.
    front.gate.change(|state| state.pause("a client"));
    if let Err(failure) = order(&front, &call).await {
        front.gate.change(Engine::resume);
        return Err(failure);
    }
    Ok(json(PAUSED))
}

pub(super) async fn on_continue(State(front): Shared) -> Result<Response, Failure> {
    let call = front.dialect()?.resume();
    order(&front, &call).await?;
    front.gate.change(Engine::resume);
    Ok(json(CONTINUED))
}

/// As SGLang does: an unknown name, or none, is no error.
pub(super) async fn on_abort(State(front): Shared, body: Bytes) -> Result<Response, Failure> {
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let dialect = front.dialect()?;
    let call = match (body["abort_all"].as_bool(), body["rid"].as_str()) {
        (Some(true), _) => Some(dialect.abort_all()),
        (_, Some(rid)) if !rid.is_empty() => Some(dialect.abort(rid)),
        _ => None,
    };
    if let Some(call) = call {
        order(&front, &call).await?;
    }
    Ok(StatusCode::OK.into_response())
}

async fn order(front: &Front, call: &Call) -> Result<(), Failure> {
    let reply = front.client.ask(&call.request, PAUSE).await?;
    Ok(call.judge(reply.status, &reply.body)?)
}

fn json(text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}
