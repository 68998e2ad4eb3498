//! The part of SGLang's HTTP API that RL frameworks use, as SGLang 0.5.23 answers.
//!
//! Differences that are meant: what the sampler has no means for is refused by its name, while
//! generation is paused by `abort` requests are refused instead of kept waiting, weights come through
//! the daemon only, and `/get_weight_version`, gone from SGLang, goes on answering: frameworks and
//! our own tests still ask it.
//!
//! Requests show the key of this incarnation, which the job's other roles and its daemons derive. Who has none
//! is told by `/health` that the engine's thread lives, for which nothing is generated.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Extension, Router};
use robust_engine::serve::{Asked, Refusal};
use robust_http::{Door, Keyless, Wire};
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::Commands;
use super::about::About;
use super::control;
use super::digest::Digest;
use super::engine::{Command, Generate, Refused, Standing};
use super::generate::{self, Replies};
use crate::model::sampler::SeqRequest;

/// Longest body that is read: a long context's ids with room to spare.
pub const MAX_BODY_BYTES: usize = 16 << 20;
/// Requests that may wait beside those that are decoded together; more are told to come later. The job's own
/// never are so many: an engine is given a quarter more than it decodes.
pub const MAX_WAITING: usize = 256;
/// When a client may ask again, where that may help, in seconds.
const RETRY_AFTER_S: u32 = 1;

/// Why a request is answered with an error.
#[derive(Debug)]
pub(super) struct Failure(pub Refusal);

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(self.0.body())).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let after = HeaderValue::from(RETRY_AFTER_S);
            response.headers_mut().insert(header::RETRY_AFTER, after);
        }
        response
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

/// Says what lies in the memory that is served.
pub type Weights = Arc<dyn Fn() -> Option<Digest> + Send + Sync>;

/// What a replica serves, and to whom.
pub struct Served {
    /// The way to the engine.
    pub commands: Commands,
    /// What lies in its memory.
    pub weights: Weights,
    /// What it says of itself.
    pub about: About,
    /// What callers of other machines have to speak.
    pub wire: Wire,
    /// Who may ask.
    pub door: Door,
    /// Requests for tokens that are taken at a time; see [`MAX_WAITING`].
    pub most: usize,
}

/// What the handlers share.
#[derive(Clone)]
pub(super) struct Shared {
    commands: Commands,
    pub weights: Weights,
    pub about: About,
    room: Arc<Semaphore>,
    most: usize,
}

/// Serves until the runtime ends.
pub(super) async fn run(listener: std::net::TcpListener, served: Served) {
    if let Err(error) = serve(listener, served).await {
        tracing::error!(%error, "the HTTP server ended");
    }
}

/// Serves the API on a non-blocking listener.
pub async fn serve(listener: std::net::TcpListener, served: Served) -> std::io::Result<()> {
    let routes = control::routes(Router::new())
        .route("/generate", post(on_generate).put(on_generate))
        .route("/health", get(on_health))
        .route("/health_generate", get(on_health_generate))
        .fallback(any(async || {
            let nothing = serde_json::json!({"detail": "Not Found"});
            (StatusCode::NOT_FOUND, axum::Json(nothing))
        }))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(Shared {
            commands: served.commands,
            weights: served.weights,
            about: served.about,
            room: Arc::new(Semaphore::new(served.most)),
            most: served.most,
        });
    robust_http::serve(listener, served.wire, served.door, routes).await
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

    /// A place among the requests for tokens, which is free again when it is dropped.
    fn room(&self) -> Result<OwnedSemaphorePermit, Failure> {
        let most = self.most;
        let full = |_| {
            let why = format!("{most} requests are under way or wait here, more are not taken");
            Refusal::unavailable(why)
        };
        Ok(Arc::clone(&self.room).try_acquire_owned().map_err(full)?)
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
    let room = shared.room()?;
    let asked = Asked::read(&bytes(body)?)?;
    let sequence = generate::sequence(&asked, shared.about.eos())?;
    let replies = shared.start(&asked, sequence, false).await?;
    shared.about.taken(asked.ids.len());
    if !asked.stream {
        return Ok(axum::Json(replies.whole().await).into_response());
    }
    let chunks = futures::stream::unfold(Some((replies, room)), async |under_way| {
        let (mut replies, room) = under_way?;
        match replies.next().await {
            Some(chunk) => Some((event(&chunk.to_string()), Some((replies, room)))),
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

/// As `/health_generate`. Who shows no key has nothing generated.
async fn on_health(state: State<Shared>, keyless: Option<Extension<Keyless>>) -> Reply {
    if keyless.is_none() {
        return on_health_generate(state).await;
    }
    let standing = state.standing().await?;
    match standing.version {
        Some(_) => Ok(StatusCode::OK.into_response()),
        None => Err(Refused::NoVersion.into()),
    }
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
