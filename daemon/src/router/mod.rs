//! The job's routing for clients that are not the job's: one address for all of its engines.
//!
//! ```text
//!  client ── key ──► paths ──► tickets ──► core: fewest requests, admitted, not suspect, its turn
//!    ▲                            │  ▲
//!    │                     engine │  │ the next one: no connection, 5xx, 408, 429, a broken reply
//!    │                            ▼  │
//!    └─ relay ◄── first byte ── upstream ──► the engine, or the shim before it
//! ```
//! Requests are counted as the job's own are, so that both go where the fewest run. A ticket is
//! held from the question to the end of the engine's reply, and given back however that comes: by
//! the reply, by the client that left, by the engine's death. The decision loop is asked and
//! answers through channels; it never waits for anybody here.
//!
//! A reply is begun only when the engine's first byte is there, and until then another engine can
//! be asked. Afterwards a stream that breaks ends with an error event.
mod attempts;
mod failure;
mod paths;
mod relay;
mod serving;
mod tickets;
mod upstream;

#[cfg(test)]
mod tests;

pub use serving::Serving;

use crate::grpc::Token;
use crate::links::RouteEvent;
use crate::tell::Tell;
use attempts::Attempts;
use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use failure::Failure;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use relay::Answer;
use robust_engine::Kind;
use robust_http::Caller;
use robust_http::Wire;
use robust_identity::{EngineClient, EngineKeys};
use robust_proto::v1;
use robust_shared::ids::Incarnation;
use robust_shared::job::{EngineKind, Job};
use std::sync::Arc;
use std::time::Duration;
use tickets::{NoRoute, Route, Tickets};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use upstream::{Asked, Upstream};

/// Longest body of a request: it is kept until the engine's reply begins, for the next engine.
const MAX_BODY_BYTES: usize = 32 << 20;

/// How long requests are kept waiting, and what they may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests at a time; each may keep a body and a part of a reply in memory.
    pub requests: usize,
    /// How long a client may take to send one.
    pub upload: Duration,
    /// For an engine that may take them.
    pub wait: Duration,
    /// Before the only engine there is, which has just failed, is asked again.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests: 1024,
            upload: Duration::from_secs(60),
            wait: Duration::from_secs(30),
            pause: Duration::from_millis(500),
        }
    }
}

/// What the router works with.
#[derive(Clone, Debug)]
pub struct Parts {
    /// What clients show.
    pub key: Token,
    /// What the job's engines are shown.
    pub engines: EngineKeys,
    /// How those of other machines are asked.
    pub client: EngineClient,
    /// The make of the job's engines.
    pub kind: Kind,
    /// The way to the driver.
    pub routes: Tell<RouteEvent>,
    /// What operators see of the job.
    pub status: watch::Receiver<Arc<v1::Status>>,
    /// How long requests are kept waiting.
    pub limits: Limits,
}

/// The make of a job's engines.
pub fn kind_of(job: &Job) -> Kind {
    match job.rollout.command.as_ref().map(|engine| engine.kind) {
        Some(EngineKind::Sglang) => Kind::Sglang,
        Some(EngineKind::Vllm) => Kind::Vllm,
        Some(EngineKind::Robust) | None => Kind::Robust,
    }
}

struct Router {
    key: Token,
    kind: Kind,
    tickets: Tickets,
    upstream: Upstream,
    room: Arc<Semaphore>,
    limits: Limits,
}

/// Serves clients until the end is told and those are answered who are served then.
async fn serve(
    (listener, wire): (TcpListener, Wire),
    parts: Parts,
    ended: impl Future<Output = ()>,
) {
    let router = Arc::new(Router {
        key: parts.key,
        kind: parts.kind,
        tickets: Tickets::new(parts.routes, parts.status),
        upstream: Upstream::new(parts.engines, &parts.client),
        room: Arc::new(Semaphore::new(parts.limits.requests)),
        limits: parts.limits,
    });
    let routes = axum::Router::new()
        .route("/health", get(on_health))
        .fallback(any(on_request))
        .with_state(router);
    robust_http::serve_until(listener, wire, routes, ended).await;
}

/// Open to who has no key: it says how many engines serve, and nothing of the job.
async fn on_health(State(router): State<Arc<Router>>) -> Response {
    let engines = router.tickets.engines();
    let (status, word) = match engines {
        0 => (StatusCode::SERVICE_UNAVAILABLE, "no engine serves"),
        _ => (StatusCode::OK, "ok"),
    };
    let body = serde_json::json!({"status": word, "engines": engines});
    (status, Json(body)).into_response()
}

async fn on_request(
    State(router): State<Arc<Router>>,
    request: Request,
) -> Result<Response, Failure> {
    if !router.is_shown(request.headers()) {
        return Err(Failure::Unauthorized);
    }
    Caller::proven_by(request.extensions());
    paths::check(router.kind, request.method(), request.uri().path())?;
    let room = Arc::clone(&router.room).try_acquire_owned();
    let Limits {
        requests, upload, ..
    } = router.limits;
    let room = room.map_err(|_| Failure::Full { most: requests })?;
    let (head, body) = request.into_parts();
    let reading = tokio::time::timeout(upload, read(body));
    let body = reading.await.map_err(|_| Failure::SlowUpload)??;
    let asked = Asked::new(head, body);
    router.answer(&asked, room).await
}

async fn read(body: Body) -> Result<Bytes, Failure> {
    let read = Limited::new(body, MAX_BODY_BYTES).collect().await;
    let read = read.map_err(|error| match error.is::<LengthLimitError>() {
        true => Failure::TooLarge {
            most: MAX_BODY_BYTES,
        },
        false => Failure::Unreadable {
            reason: error.to_string(),
        },
    })?;
    Ok(read.to_bytes())
}

impl Router {
    fn is_shown(&self, headers: &HeaderMap) -> bool {
        let shown = headers.get(header::AUTHORIZATION);
        let shown = shown.and_then(|shown| shown.to_str().ok());
        let shown = shown.and_then(|shown| shown.split_once(' '));
        shown.is_some_and(|(scheme, key)| {
            scheme.eq_ignore_ascii_case("bearer") && self.key.matches(key.trim())
        })
    }

    async fn answer(&self, asked: &Asked, room: OwnedSemaphorePermit) -> Result<Response, Failure> {
        let mut attempts = Attempts::default();
        loop {
            let route = match self.route(attempts.failed()).await {
                Ok(route) => route,
                Err(none) => return Err(attempts.without(none)),
            };
            match self.upstream.ask(&route, asked).await {
                Ok(reply) => {
                    let answer = Answer { reply, route, room };
                    return Ok(answer.relay());
                }
                Err(failed) => attempts.note(route.engine, failed),
            }
            // Given back before the next engine is asked for.
            drop(route);
            if let Some(last) = attempts.given_up() {
                return last;
            }
        }
    }

    /// An engine, another than the one that has just failed where there is one.
    async fn route(&self, failed: Option<Incarnation>) -> Result<Route, NoRoute> {
        let route = self.tickets.route(failed, self.limits.wait).await?;
        if Some(route.engine) != failed {
            return Ok(route);
        }
        drop(route);
        // The only one: it may be better in a moment, or its death be known.
        tokio::time::sleep(self.limits.pause).await;
        self.tickets.route(failed, self.limits.wait).await
    }
}
