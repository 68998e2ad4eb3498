//! The engine's own routes, passed on as they are; what changes the engine is seen on the way.
//!
//! Streams are not held up: each piece goes on as it comes, but for the time in which weights are loaded
//! and verified, when what the engine says is nobody's yet.

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use robust_engine::serve::Refusal;
use robust_engine::{Kind, MemoryPart, Seen, check_body};
use robust_shared::job::{EngineKind, EngineWeights};

use super::count::Counter;
use super::{Failure, Front, MAX_BODY_BYTES, Shared};
use crate::client::is_end_to_end;
use crate::gate::Entered;
use crate::state::State as Engine;

pub(super) async fn on_any(State(front): Shared, request: Request) -> Result<Response, Failure> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, MAX_BODY_BYTES).await;
    let body = body.map_err(|error| Refusal::bad(format!("the body: {error}")))?;
    on(&front, head, body).await
}

/// Passes a request on.
pub(super) async fn on(front: &Front, head: Parts, body: Bytes) -> Result<Response, Failure> {
    let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
    let seen = Seen::of(kind(front), head.method.as_str(), path, query, &body);
    let entered = match &seen {
        Some(Seen::Generate) => {
            let asked = serde_json::from_slice(&body).unwrap_or_default();
            // One such token ends a SGLang server, with everybody's requests (C-13).
            check_body(&asked, front.bounds.vocabulary).map_err(Refusal::bad)?;
            Some(front.gate.enter().await?)
        }
        _ => None,
    };
    before(front, seen.as_ref());
    let target = head
        .uri
        .path_and_query()
        .map_or("/", |target| target.as_str());
    let passed = front
        .client
        .pass(head.method.clone(), target, &head.headers, body);
    let response = match passed.await {
        Ok(response) => response,
        Err(error) => {
            after(front, seen.as_ref(), false);
            return Err(error.into());
        }
    };
    after(front, seen.as_ref(), response.status().is_success());
    Ok(passed_back(front, response, entered))
}

pub(super) fn kind(front: &Front) -> Kind {
    match front.command.kind {
        EngineKind::Sglang => Kind::Sglang,
        EngineKind::Vllm => Kind::Vllm,
        EngineKind::Robust => Kind::Robust,
    }
}

/// The door closes before the engine stops: who asks a paused engine waits without end.
fn before(front: &Front, seen: Option<&Seen>) {
    match seen {
        Some(Seen::Pause(_)) => front.gate.change(|state| state.pause("a client")),
        Some(Seen::Sleep(parts)) => front.gate.change(|state| {
            state.sleep(parts, "a client, asleep");
            if !is_theirs(front) && parts.contains(&MemoryPart::Weights) {
                state.refused();
            }
        }),
        Some(Seen::Load { .. } | Seen::UpdateBegins) if !is_theirs(front) => {
            tracing::warn!(
                "a client loads weights into an engine that gets its weights from the job; it gets no \
                 traffic until the next version is verified (`rollout.command.weights = \"theirs\"` \
                 leaves them to the client)"
            );
            front.gate.change(Engine::refused);
        }
        _ => {}
    }
}

fn after(front: &Front, seen: Option<&Seen>, succeeded: bool) {
    match seen {
        Some(Seen::Continue) if succeeded => front.gate.change(Engine::resume),
        Some(Seen::Wake(parts)) if succeeded => {
            let mut awake = false;
            front.gate.change(|state| awake = state.wake(parts));
            if awake && !is_theirs(front) {
                // What its weights are now nobody knows.
                front.words.renew();
            }
        }
        Some(Seen::Pause(_)) if !succeeded => front.gate.change(Engine::resume),
        // Who was refused may have put it to sleep all the same, and has to wake it.
        _ => {}
    }
}

fn is_theirs(front: &Front) -> bool {
    matches!(
        front.command.weights,
        EngineWeights::Theirs | EngineWeights::None
    )
}

/// The engine's reply for its client.
fn passed_back(
    front: &Front,
    response: hyper::Response<Incoming>,
    entered: Option<Entered>,
) -> Response {
    let (head, body) = response.into_parts();
    let counter = entered.is_some().then(Counter::default);
    let passing = Passing {
        front: front.clone(),
        body,
        counter,
        _entered: entered,
    };
    let pieces = futures::stream::unfold(passing, async |mut passing| {
        let piece = passing.next().await?;
        Some((piece, passing))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    *response.status_mut() = head.status;
    let headers = head.headers.iter().filter(|(name, _)| is_end_to_end(name));
    for (name, value) in headers {
        response.headers_mut().append(name, value.clone());
    }
    response
}

/// A reply under way.
struct Passing {
    front: Front,
    body: Incoming,
    /// Of replies that have tokens.
    counter: Option<Counter>,
    _entered: Option<Entered>,
}

impl Passing {
    async fn next(&mut self) -> Option<std::io::Result<Bytes>> {
        loop {
            let frame = match self.body.frame().await {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Some(Err(std::io::Error::other(error))),
                None => {
                    let last = self.counter.as_mut().map_or(0, Counter::closed);
                    self.front.gate.tokens(last);
                    return None;
                }
            };
            let Ok(bytes) = frame.into_data() else {
                continue;
            };
            if let Some(counter) = &mut self.counter {
                if let Err(refused) = self.front.gate.passes().await {
                    return Some(Err(std::io::Error::other(refused)));
                }
                let tokens = counter.feed(&bytes);
                self.front.gate.tokens(tokens);
            }
            return Some(Ok(bytes));
        }
    }
}
