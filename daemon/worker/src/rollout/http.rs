//! The part of SGLang's HTTP API that RL frameworks use, as SGLang 0.5.23 answers.
//!
//! Differences that are meant: what the sampler has no means for is refused by its name, while
//! generation is paused by `abort` requests are refused instead of kept waiting, weights come through
//! the daemon only, and `/get_weight_version`, gone from SGLang, goes on answering: frameworks and
//! our own tests still ask it.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use robust_engine::serve::{Asked, Refusal};
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot};

use super::Commands;
use super::about::About;
use super::control;
use super::digest::Digest;
use super::engine::{Command, Generate, Refused, Standing};
use super::generate::{self, Replies};
use crate::model::sampler::SeqRequest;

/// Longest body that is read: a long context's ids with room to spare.
pub const MAX_BODY_BYTES: usize = 16 << 20;

/// Why a request is answered with an error.
#[derive(Debug)]
pub(super) struct Failure(pub Refusal);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, axum::Json(self.0.body())).into_response()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Failure(refusal)
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Failure(match refused {
            Refused::NoVersion | Refused::Paused => Refusal::unavailable(refused),
            _ => Refusal::bad(refused),
        })
    }
}

pub(super) type Reply = Result<Response, Failure>;

/// Serves until the runtime ends.
pub(super) async fn run(
    listener: std::net::TcpListener,
    commands: Commands,
    weights: Weights,
    about: About,
) {
    if let Err(error) = serve(listener, commands, weights, about).await {
        tracing::error!(%error, "the HTTP server ended");
    }
}

/// Says what lies in the memory that is served.
pub type Weights = Arc<dyn Fn() -> Option<Digest> + Send + Sync>;

/// What the handlers share.
#[derive(Clone)]
pub(super) struct Shared {
    commands: Commands,
    pub weights: Weights,
    pub about: About,
}

/// Serves the API on a non-blocking listener.
pub async fn serve(
    listener: std::net::TcpListener,
    commands: Commands,
    weights: Weights,
    about: About,
) -> std::io::Result<()> {
    let router = control::routes(Router::new())
        .route("/generate", post(on_generate).put(on_generate))
        .route("/health", get(on_health_generate))
        .route("/health_generate", get(on_health_generate))
        .fallback(any(async || {
            let nothing = serde_json::json!({"detail": "Not Found"});
            (StatusCode::NOT_FOUND, axum::Json(nothing))
        }))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(Shared {
            commands,
            weights,
            about,
        });
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

pub(super) fn bytes(body: Result<Bytes, BytesRejection>) -> Result<Bytes, Failure> {
    body.map_err(|rejection| {
        Failure(Refusal::Refused {
            status: rejection.status().as_u16(),
            message: rejection.body_text(),
        })
    })
}

pub(super) fn parse<T: DeserializeOwned>(
    body: Result<Bytes, BytesRejection>,
) -> Result<T, Failure> {
    let body = bytes(body)?;
    // An absent body is an empty object: several calls need no argument.
    let body = if body.is_empty() {
        b"{}".as_slice()
    } else {
        &body
    };
    serde_json::from_slice(body).map_err(|error| Refusal::NotAnObject(error.to_string()).into())
}

impl Shared {
    pub fn send(&self, command: Command) -> Result<(), Failure> {
        self.commands.send(command).map_err(|_| ended())
    }

    /// Asks the engine what it is doing.
    pub async fn standing(&self) -> Result<Standing, Failure> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Standing(reply))?;
        answer.await.map_err(|_| ended())
    }

    async fn start(
        &self,
        asked: &Asked,
        (rid, sequence): (String, SeqRequest),
        probe: bool,
    ) -> Result<Replies, Failure> {
        let (pieces, receiver) = mpsc::unbounded_channel();
        let (accepted, answer) = oneshot::channel();
        let replies = Replies::new(receiver, rid.clone(), asked, &self.about);
        self.send(Command::Generate(Box::new(Generate {
            rid,
            sequence,
            probe,
            pieces,
            accepted,
        })))?;
        answer.await.map_err(|_| ended())??;
        Ok(replies)
    }
}

pub(super) fn ended() -> Failure {
    Failure(Refusal::unavailable("the engine ended"))
}

async fn on_generate(State(shared): State<Shared>, body: Result<Bytes, BytesRejection>) -> Reply {
    let asked = Asked::read(&bytes(body)?)?;
    let sequence = generate::sequence(&asked, shared.about.eos())?;
    let replies = shared.start(&asked, sequence, false).await?;
    shared.about.taken(asked.ids.len());
    if !asked.stream {
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
async fn on_health_generate(State(shared): State<Shared>) -> Reply {
    let asked = Asked::read(
        br#"{"input_ids": [0], "sampling_params": {"max_new_tokens": 1, "temperature": 0.0}}"#,
    )?;
    let sequence = generate::sequence(&asked, &[])?;
    let replies = shared.start(&asked, sequence, true).await?;
    let reply = replies.whole().await;
    let finish = &reply["meta_info"]["finish_reason"];
    match finish["type"].as_str() {
        Some("stop" | "length") => Ok(StatusCode::OK.into_response()),
        _ => Err(Refusal::unavailable(finish).into()),
    }
}
