//! The part of SGLang's HTTP API that RL frameworks use.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

use super::Commands;
use super::digest::Digest;
use super::engine::{Command, Generate, Pause, Refused};
use super::generate::{self, Replies};
use crate::model::sampler::SeqRequest;

/// Longest body that is read: a long context's ids with room to spare.
pub const MAX_BODY_BYTES: usize = 16 << 20;

/// Why a request is answered with an error: status, type and text.
#[derive(Debug)]
struct Failure(StatusCode, &'static str, String);

impl Failure {
    fn bad(message: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, "BadRequest", message.into())
    }

    fn unavailable(message: impl Into<String>) -> Self {
        Self(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message.into(),
        )
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Failure(status, kind, message) = self;
        let error = json!({"type": kind, "message": message, "code": status.as_u16()});
        (status, axum::Json(json!({"error": error}))).into_response()
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoVersion | Refused::Paused => Failure::unavailable(refused.to_string()),
            _ => Failure::bad(refused.to_string()),
        }
    }
}

type Reply = Result<Response, Failure>;

/// Serves until the runtime ends.
pub(super) async fn run(listener: std::net::TcpListener, commands: Commands, weights: Weights) {
    if let Err(error) = serve(listener, commands, weights).await {
        tracing::error!(%error, "the HTTP server ended");
    }
}

/// Says what lies in the memory that is served.
pub type Weights = Arc<dyn Fn() -> Option<Digest> + Send + Sync>;

/// Serves the API on a non-blocking listener.
pub async fn serve(
    listener: std::net::TcpListener,
    commands: Commands,
    weights: Weights,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/generate", post(on_generate).put(on_generate))
        .route("/health", get(async || StatusCode::OK))
        .route("/health_generate", get(on_health_generate))
        .route("/get_weight_version", get(on_weight_version))
        .route("/pause_generation", post(on_pause))
        .route("/continue_generation", post(on_continue))
        .route("/abort_request", post(on_abort))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(commands)
        .route(
            "/weights_digest",
            get(async move || on_digest(weights).await),
        );
    let listener = tokio::net::TcpListener::from_std(listener)?;
    axum::serve(
        axum::serve::ListenerExt::tap_io(listener, |stream| {
            // Tokens go out one by one; each is to leave at once.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "TCP_NODELAY");
            }
        }),
        router,
    )
    .await
}

fn parse<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>) -> Result<T, Failure> {
    let body =
        body.map_err(|rejection| Failure(rejection.status(), "BadBody", rejection.body_text()))?;
    // An absent body is an empty object: several calls need no argument.
    let body = if body.is_empty() {
        b"{}".as_slice()
    } else {
        &body
    };
    serde_json::from_slice(body).map_err(|error| Failure::bad(format!("the body: {error}")))
}

fn send(commands: &Commands, command: Command) -> Result<(), Failure> {
    commands
        .send(command)
        .map_err(|_| Failure::unavailable("the engine ended"))
}

async fn start(
    commands: &Commands,
    rid: String,
    sequence: SeqRequest,
    (logprobs, probe): (bool, bool),
) -> Result<Replies, Failure> {
    let (pieces, receiver) = mpsc::unbounded_channel();
    let (accepted, answer) = oneshot::channel();
    let replies = Replies::new(receiver, rid.clone(), logprobs, sequence.ids.len());
    send(
        commands,
        Command::Generate(Box::new(Generate {
            rid,
            sequence,
            probe,
            pieces,
            accepted,
        })),
    )?;
    answer
        .await
        .map_err(|_| Failure::unavailable("the engine ended"))??;
    Ok(replies)
}

async fn on_generate(
    State(commands): State<Commands>,
    body: Result<Bytes, BytesRejection>,
) -> Reply {
    let body: generate::Body = parse(body)?;
    let (rid, sequence) = body.request().map_err(Failure::bad)?;
    let replies = start(&commands, rid, sequence, (body.return_logprob, false)).await?;
    if !body.stream {
        return Ok(axum::Json(replies.whole().await).into_response());
    }
    let chunks = futures::stream::unfold(Some(replies), async |replies| {
        let mut replies = replies?;
        match replies.next().await {
            Some(chunk) => Some((event(&chunk.to_string()), Some(replies))),
            None => Some((event("[DONE]"), None)),
        }
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, Body::from_stream(chunks)).into_response())
}

fn event(data: &str) -> Result<Bytes, Infallible> {
    Ok(Bytes::from(format!("data: {data}\n\n")))
}

/// Healthy is who really generates a token now.
async fn on_health_generate(State(commands): State<Commands>) -> Reply {
    let body: generate::Body = parse(Ok(Bytes::from_static(
        br#"{"input_ids": [0], "sampling_params": {"max_new_tokens": 1, "temperature": 0.0}}"#,
    )))?;
    let (rid, sequence) = body.request().map_err(Failure::bad)?;
    let reply = start(&commands, rid, sequence, (false, true))
        .await?
        .whole()
        .await;
    match reply["meta_info"]["finish_reason"]["type"].as_str() {
        Some("stop" | "length") => Ok(StatusCode::OK.into_response()),
        _ => Err(Failure::unavailable(
            reply["meta_info"]["finish_reason"].to_string(),
        )),
    }
}

async fn on_weight_version(State(commands): State<Commands>) -> Reply {
    let (reply, answer) = oneshot::channel();
    send(&commands, Command::Version(reply))?;
    let version = answer
        .await
        .map_err(|_| Failure::unavailable("the engine ended"))?;
    let version = version.map(|version| version.to_string());
    Ok(axum::Json(json!({"weight_version": version})).into_response())
}

/// Not of SGLang: the digest of what is served, computed from its memory now.
async fn on_digest(weights: Weights) -> Reply {
    // Every byte is read: that is nothing for the thread that talks.
    let digest = tokio::task::spawn_blocking(move || weights()).await;
    let none = || Failure::unavailable(Refused::NoVersion.to_string());
    let digest = digest.ok().flatten().ok_or_else(none)?;
    Ok(axum::Json(digest).into_response())
}

#[derive(Deserialize)]
struct PauseBody {
    /// `abort` ends what runs, `retract` and `in_place` keep it for later.
    #[serde(default)]
    mode: Option<String>,
}

/// Answered once it computes no more: the caller is about to give the processor to somebody else.
async fn on_pause(State(commands): State<Commands>, body: Result<Bytes, BytesRejection>) -> Reply {
    let body: PauseBody = parse(body)?;
    let (paused, answer) = oneshot::channel();
    match body.mode.as_deref() {
        None | Some("abort") => send(&commands, Command::Pause(Pause::Abort, paused))?,
        Some("retract" | "in_place") => send(&commands, Command::Pause(Pause::Keep, paused))?,
        Some(other) => {
            let known = "abort, retract and in_place";
            return Err(Failure::bad(format!(
                "mode {other:?}: the modes are {known}"
            )));
        }
    }
    answer
        .await
        .map_err(|_| Failure::unavailable("the engine ended"))?;
    done("paused")
}

async fn on_continue(
    State(commands): State<Commands>,
    body: Result<Bytes, BytesRejection>,
) -> Reply {
    let _: Value = parse(body)?;
    send(&commands, Command::Continue)?;
    done("continued")
}

#[derive(Deserialize)]
struct AbortBody {
    #[serde(default)]
    rid: Option<String>,
    #[serde(default)]
    abort_all: bool,
}

async fn on_abort(State(commands): State<Commands>, body: Result<Bytes, BytesRejection>) -> Reply {
    let body: AbortBody = parse(body)?;
    match (body.rid, body.abort_all) {
        (_, true) => send(&commands, Command::Abort(None))?,
        (Some(rid), false) => send(&commands, Command::Abort(Some(rid)))?,
        (None, false) => return Err(Failure::bad("rid or abort_all is missing")),
    }
    done("aborted")
}

fn done(status: &str) -> Reply {
    Ok(axum::Json(json!({"status": status})).into_response())
}
