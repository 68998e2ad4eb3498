//! Everything but `/generate`: orders, and questions about the replica.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use robust_engine::serve::{CONTINUED, FLUSHED, PAUSED, Refusal};
use robust_engine::{Kind, PauseMode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::digest::Digest;
use super::engine::{Command, Pause, Refused};
use super::http::{Failure, Reply, Shared, ended, parse};

/// Orders of SGLang that would change the weights.
const CHANGES_OF_WEIGHTS: [&str; 10] = [
    "/update_weights_from_disk",
    "/update_weights_from_tensor",
    "/update_weights_from_distributed",
    "/update_weights_from_ipc",
    "/update_weight_version",
    "/begin_weight_update",
    "/end_weight_update",
    "/init_weights_update_group",
    "/destroy_weights_update_group",
    "/pull_weights",
];

/// Adds the routes.
pub(super) fn routes(router: Router<Shared>) -> Router<Shared> {
    let mut router = router
        .route("/ready", get(on_ready))
        .route("/model_info", get(on_model_info))
        .route("/get_model_info", get(on_model_info))
        .route("/server_info", get(on_server_info))
        .route("/get_server_info", get(on_server_info))
        .route("/get_weight_version", get(on_weight_version))
        .route("/v1/models", get(on_models))
        .route("/v1/loads", get(on_loads))
        .route("/metrics", get(on_metrics))
        .route("/flush_cache", get(on_flush).post(on_flush))
        .route("/pause_generation", post(on_pause))
        .route("/continue_generation", post(on_continue))
        .route("/abort_request", post(on_abort))
        .route("/weights_digest", get(on_digest))
        .route("/weights_checker", get(on_check).post(on_check));
    for path in CHANGES_OF_WEIGHTS {
        router = router.route(path, post(weights_come_otherwise));
    }
    for path in ["/release_memory_occupation", "/resume_memory_occupation"] {
        let refuse = || get(memory_stays).post(memory_stays);
        router = router.route(path, refuse());
    }
    router
}

async fn on_ready(State(shared): State<Shared>) -> Reply {
    let standing = shared.standing().await?;
    let ready = standing.version.is_some() && !standing.paused;
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    Ok(status.into_response())
}

async fn on_model_info(State(shared): State<Shared>) -> Reply {
    let version = shared.standing().await?.version;
    answer(shared.about.facts.model_info(version))
}

async fn on_server_info(State(shared): State<Shared>) -> Reply {
    let figures = shared.about.figures(&shared.standing().await?);
    answer(shared.about.facts.server_info(&figures))
}

async fn on_models(State(shared): State<Shared>) -> Reply {
    answer(shared.about.facts.models())
}

async fn on_loads(State(shared): State<Shared>) -> Reply {
    let figures = shared.about.figures(&shared.standing().await?);
    answer(shared.about.facts.loads(&figures))
}

async fn on_metrics(State(shared): State<Shared>) -> Reply {
    let figures = shared.about.figures(&shared.standing().await?);
    let text = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    Ok((text, figures.metrics()).into_response())
}

/// Not of SGLang 0.5.23 any more.
async fn on_weight_version(State(shared): State<Shared>) -> Reply {
    let version = shared.standing().await?.version;
    let version = version.map(|version| version.to_string());
    answer(json!({"weight_version": version}))
}

/// Nothing is kept from one request to the next.
async fn on_flush() -> Response {
    FLUSHED.into_response()
}

#[derive(Deserialize)]
struct PauseBody {
    #[serde(default)]
    mode: Option<String>,
}

/// Answered once it computes no more: the caller is about to give the processor to somebody else.
async fn on_pause(State(shared): State<Shared>, body: Result<Bytes, BytesRejection>) -> Reply {
    let body: PauseBody = parse(body)?;
    let mode = body.mode.as_deref();
    let how = match PauseMode::from_word(Kind::Sglang, mode) {
        Some(PauseMode::Abort) => Pause::Abort,
        Some(_) => Pause::Keep,
        None => {
            let known = "abort, retract and in_place";
            let mode = mode.unwrap_or_default();
            let what = format!("mode {mode:?}: the modes are {known}");
            return Err(Refusal::NotAnObject(what).into());
        }
    };
    let (paused, done) = oneshot::channel();
    shared.send(Command::Pause(how, paused))?;
    done.await.map_err(|_| ended())?;
    Ok(said(PAUSED))
}

async fn on_continue(State(shared): State<Shared>, body: Result<Bytes, BytesRejection>) -> Reply {
    let _: Value = parse(body)?;
    shared.send(Command::Continue)?;
    Ok(said(CONTINUED))
}

#[derive(Deserialize)]
struct AbortBody {
    #[serde(default)]
    rid: Option<String>,
    #[serde(default)]
    abort_all: bool,
}

/// Always 200 and no word: whoever aborts cannot know whether the request has ended meanwhile. Only
/// the whole name ends a request; SGLang 0.5.23 too ends nothing by a part of one.
async fn on_abort(State(shared): State<Shared>, body: Result<Bytes, BytesRejection>) -> Reply {
    let body: AbortBody = parse(body)?;
    match body.rid.filter(|rid| !rid.is_empty()) {
        _ if body.abort_all => shared.send(Command::Abort(None))?,
        Some(rid) => shared.send(Command::Abort(Some(rid)))?,
        None => tracing::debug!("an abort of nothing"),
    }
    Ok(StatusCode::OK.into_response())
}

/// Not of SGLang: the digest of what is served, computed from its memory now.
async fn on_digest(State(shared): State<Shared>) -> Reply {
    Ok(axum::Json(digest(shared).await?).into_response())
}

async fn digest(shared: Shared) -> Result<Digest, Failure> {
    // Every byte is read: that is nothing for the thread that talks.
    let digest = tokio::task::spawn_blocking(move || (shared.weights)()).await;
    let none = || Refusal::unavailable(Refused::NoVersion);
    Ok(digest.ok().flatten().ok_or_else(none)?)
}

#[derive(Deserialize)]
struct CheckBody {
    #[serde(default)]
    action: Option<String>,
}

/// SGLang's shape with checksums of our own: XXH3 of each chunk instead of a part of SHA-256 of
/// each parameter.
async fn on_check(State(shared): State<Shared>, body: Result<Bytes, BytesRejection>) -> Reply {
    let body: CheckBody = parse(body)?;
    let action = body.action.as_deref().unwrap_or("checksum");
    if action != "checksum" {
        let what = format!("action {action:?} is not supported by the built-in rollout");
        return Err(Refusal::Elsewhere(what).into());
    }
    let digest = digest(shared).await?;
    let chunks = digest.chunk_xxh3.into_iter().enumerate();
    let checksums: serde_json::Map<_, _> = chunks
        .map(|(number, sum)| (format!("chunk.{number}"), sum.into()))
        .collect();
    answer(json!({
        "success": true,
        "message": "Success.",
        "ranks": [{"checksums": checksums, "per_gpu_checksum": digest.digest}],
        "per_engine_checksum": digest.digest,
    }))
}

async fn weights_come_otherwise() -> Failure {
    let why = "weights come to the built-in rollout through the daemon, from the job's trainer";
    Failure(Refusal::Elsewhere(why.into()))
}

async fn memory_stays() -> Failure {
    let why = "the built-in rollout keeps its memory: pause it where a trainer needs the processor";
    Failure(Refusal::bad(why))
}

fn answer(body: Value) -> Reply {
    Ok(axum::Json(body).into_response())
}

fn said(json: &'static str) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], json).into_response()
}
