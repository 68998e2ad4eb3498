//! The leader's HTTP: what both dialects share.

mod ask;
mod completions;
mod metrics;
mod plugin;
mod sglang;
mod sglang_generate;
mod vllm;
mod vllm_generate;

use crate::args::Args;
use crate::link::Link;
use crate::model::Model;
use crate::protocol::{Boot, Dialect, Operation};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// What every handler of a life of the engine has.
pub struct App {
    /// The command line.
    pub args: Args,
    /// What the children were told.
    pub boot: Boot,
    /// The way to them.
    pub link: Arc<Link>,
    /// The model's sizes and vocabulary.
    pub model: Model,
    /// Tokens of prompt and reply together.
    pub context: usize,
    leader: Mutex<Leader>,
    is_dead: AtomicBool,
    /// Whether an update of weights by others was begun and not ended.
    updating: AtomicBool,
    drawn: AtomicU64,
}

/// What the leader itself knows, also while its children are stopped.
pub struct Leader {
    /// What the weights are called.
    pub version: String,
    /// The folder they came from.
    pub model_path: String,
    /// Whether somebody paused it.
    pub paused: bool,
    /// Whether its memory is given back.
    pub sleeping: bool,
}

/// A handler's state.
pub type Shared = State<Arc<App>>;

impl App {
    /// A leader whose children have just been started.
    pub fn new(args: Args, boot: Boot, link: Arc<Link>) -> Self {
        let model = Model::read(&boot.model);
        let leader = Leader {
            version: "default".to_owned(),
            model_path: boot.model.display().to_string(),
            paused: false,
            sleeping: false,
        };
        Self {
            context: args.context_length.unwrap_or(model.context),
            model,
            args,
            boot,
            link,
            leader: Mutex::new(leader),
            is_dead: AtomicBool::new(false),
            updating: AtomicBool::new(false),
            drawn: AtomicU64::new(0),
        }
    }

    /// What the leader knows.
    pub fn leader(&self) -> MutexGuard<'_, Leader> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name that clients know the model by.
    pub fn served(&self) -> String {
        self.args
            .served_model_name
            .clone()
            .unwrap_or_else(|| self.leader().model_path.clone())
    }

    /// What is under way ends in errors, and nothing is served any more.
    pub fn dead(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
        self.link.fail();
    }

    /// Whether that is so.
    pub fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::Relaxed)
    }

    /// A number that is drawn once in a life; never 0.
    pub fn draw(&self) -> u64 {
        self.drawn.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// An id of 32 hexadecimal digits.
    pub fn id(&self) -> String {
        let drawn = self.draw().to_le_bytes();
        format!(
            "{:032x}",
            xxhash_rust::xxh3::xxh3_128_with_seed(&drawn, u64::from(std::process::id()))
        )
    }

    /// What a time of the real engine is here.
    pub fn scaled(&self, seconds: f64) -> Duration {
        crate::tree::scaled(&self.boot, seconds)
    }

    /// The weights have another name from now on.
    pub async fn rename(&self, version: &str) {
        let operation = Operation::SetVersion {
            version: version.to_owned(),
        };
        let _ = self.link.call(operation).await;
        version.clone_into(&mut self.leader().version);
    }

    /// The weights of a folder; why not, as text.
    pub async fn load(&self, folder: &Path) -> Result<Result<(), String>, crate::link::Dead> {
        let loaded = self
            .link
            .call(Operation::Load {
                path: folder.to_owned(),
            })
            .await?;
        Ok(loaded.map(|_| self.leader().model_path = folder.display().to_string()))
    }
}

/// The routes of the dialect.
pub fn router(app: Arc<App>) -> Router {
    let routes = match app.boot.dialect {
        Dialect::Sglang => sglang::routes(&app),
        Dialect::Vllm => vllm::routes(&app),
    };
    let not_found = || async { reply(404, json!({ "detail": "Not Found" })) };
    let not_allowed = || async { reply(405, json!({ "detail": "Method Not Allowed" })) };
    routes
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(axum::middleware::from_fn_with_state(app.clone(), guard))
        .with_state(app)
}

/// vLLM's key guards two prefixes, SGLang's everything but what tells whether it lives.
async fn guard(State(app): Shared, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let guarded = match app.boot.dialect {
        Dialect::Vllm => path.starts_with("/v1") || path.starts_with("/inference"),
        Dialect::Sglang => !path.starts_with("/health") && !path.starts_with("/metrics"),
    };
    let sent = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|v| v.to_str().ok());
    let right = app.args.api_key.as_ref().map(|key| format!("Bearer {key}"));
    if guarded && right.is_some() && right.as_deref() != sent {
        return reply(401, json!({ "error": "Unauthorized" }));
    }
    next.run(request).await
}

/// A reply in JSON.
pub fn reply(status: u16, body: Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, axum::Json(body)).into_response()
}

/// A reply without a body.
pub fn empty(status: u16) -> Response {
    StatusCode::from_u16(status)
        .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        .into_response()
}

/// The JSON of a body that says it is JSON.
pub fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(header::CONTENT_TYPE)
        .and_then(|v| v.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}

/// The body of a recorded reply, which is where fields that nobody asks for come from.
pub fn recorded(fixture: &str) -> Value {
    let mut all: Value = serde_json::from_str(fixture).unwrap_or_default();
    all["reply"]["body"].take()
}

/// Where the chunks of a stream go.
#[derive(Clone)]
pub struct Chunks(UnboundedSender<String>);

impl Chunks {
    /// Sends a chunk; a client that is gone is noticed by `stream`.
    pub fn send(&self, chunk: &Value) {
        let _ = self.0.send(format!("data: {chunk}\n\n"));
    }

    /// The line that ends a stream in order.
    pub fn done(&self) {
        let _ = self.0.send("data: [DONE]\n\n".to_owned());
    }
}

/// A stream of chunks that a task makes; the task ends when the client is gone.
pub fn stream<F>(make: impl FnOnce(Chunks) -> F) -> Response
where
    F: Future<Output = ()> + Send + 'static,
{
    let (send, chunks) = unbounded_channel();
    let closed = send.clone();
    let made = make(Chunks(send));
    tokio::spawn(async move {
        tokio::select! {
            () = made => {}
            () = closed.closed() => {}
        }
    });
    let body = UnboundedReceiverStream::new(chunks).map(Ok::<_, std::convert::Infallible>);
    let kind = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")];
    (kind, Body::from_stream(body)).into_response()
}
