//! What clients reach: our own dialect of `/generate`, the engine's own routes, and nothing while the
//! engine is paused or serves what nobody verified.
//!
//! ```text
//!   agents ──── /generate, with a trajectory ──► translated, deltas with versions ─┐
//!   trainers ── the engine's own routes ───────► passed on as they are ────────────┼──► engine
//!   daemon ──── a hybrid's slot ───────────────► the memory given back, or taken again ─┤
//!   daemon ──── /health_generate, /pause_ .. ──► answered here, in its dialect ────┘
//! ```
//! Nobody else reaches the engine, so a pause or an update that somebody orders is seen here, and the
//! rules know of it. Whoever asks shows a key ([`robust_http`]): that of this incarnation, as the job's roles do,
//! that of the job's clients, or the engine's own. `[rollout.command] open` lets everybody in.

mod control;
mod count;
mod generate;
mod health;
mod pass;
mod refusal;
mod room;
mod switch;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::middleware::from_fn_with_state;
use axum::routing::{any, get, post};
use robust_engine::Dialect;
use robust_http::{Door, Wire};
use robust_shared::job::{EngineKind, RolloutCommand};

use crate::client::Client;
use crate::gate::Gate;
use crate::words::Words;

pub use refusal::Failure;

/// Longest body that is read: images and whole batches go through here, too.
const MAX_BODY_BYTES: usize = 256 << 20;

/// What every route needs.
#[derive(Clone)]
pub struct Front {
    /// The engine.
    pub client: Client,
    /// Its door.
    pub gate: Arc<Gate>,
    /// `[rollout.command]`.
    pub command: Arc<RolloutCommand>,
    /// How the engine is spoken to; set when it is up.
    pub dialect: Arc<OnceLock<Dialect>>,
    /// The model's bounds.
    pub bounds: Bounds,
    /// Whose the slot of a hybrid engine is.
    pub words: Words,
}

/// What the model can take; engines do not all hold themselves to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Tokens that it has; one outside ends a SGLang server.
    pub vocabulary: u32,
    /// Tokens of prompt and reply together.
    pub longest: usize,
}

impl Front {
    /// The engine's dialect; before it is known there is nothing to be asked.
    fn dialect(&self) -> Result<&Dialect, Failure> {
        let starting = || Failure::unavailable("the engine is starting", Duration::from_secs(1));
        self.dialect.get().ok_or_else(starting)
    }
}

/// Serves whom the door lets in, on a non-blocking listener, until the runtime ends.
pub async fn serve(
    listener: std::net::TcpListener,
    wire: Wire,
    door: Door,
    front: Front,
) -> std::io::Result<()> {
    let mut router = Router::new()
        .route(
            "/generate",
            post(generate::on_generate).put(generate::on_generate),
        )
        .route("/health", get(health::on_health))
        .route("/health_generate", get(health::on_health_generate));
    if front.command.kind == EngineKind::Vllm {
        // The daemon and our agents speak as to SGLang; vLLM has none of these routes.
        router = router
            .route("/pause_generation", post(control::on_pause))
            .route("/continue_generation", post(control::on_continue))
            .route("/abort_request", post(control::on_abort));
    }
    let room = from_fn_with_state(room::Room::new(pass::kind(&front)), room::Room::enter);
    let first = from_fn_with_state(front.clone(), switch::first);
    let router = router
        .fallback(any(pass::on_any))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(room)
        .layer(first)
        .with_state(front);
    robust_http::serve(listener, wire, door, router).await
}

/// What a handler extracts.
type Shared = State<Front>;
