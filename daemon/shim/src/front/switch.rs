//! The controller's word on a hybrid engine's slot, and what is refused while the slot is the rank's.

use axum::extract::{Request, State};
use axum::http::{Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use robust_engine::serve::{CONTINUED, PAUSED};
use robust_engine::{SWITCH_HEADER, Seen};
use robust_shared::job::HybridMode;

use super::{Failure, Front, Shared, pass};
use crate::state::Closed;

/// Looks at every request before its route does.
pub(super) async fn first(State(front): Shared, request: Request, next: Next) -> Response {
    if request.headers().contains_key(SWITCH_HEADER) {
        match request.uri().path() {
            "/pause_generation" => {
                front.words.lend().await;
                return json(PAUSED);
            }
            "/continue_generation" => {
                front.words.take_back().await;
                return json(CONTINUED);
            }
            _ => {}
        }
    }
    match front.gate.state().is_lent() && is_refused(&front, &request) {
        true => Failure::from(Closed::Lent).into_response(),
        false => next.run(request).await,
    }
}

fn json(text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// Whether a request would have an engine do something that is to do nothing, or touch memory that it has
/// not. Ends of requests pass: there are none.
fn is_refused(front: &Front, request: &Request) -> bool {
    let (method, path) = (request.method(), request.uri().path());
    // What the bodies say makes no difference here.
    match Seen::of(pass::kind(front), method.as_str(), path, "", b"{}") {
        Some(Seen::Abort { .. }) => false,
        Some(Seen::Generate | Seen::Pause(_) | Seen::Continue | Seen::Sleep(_) | Seen::Wake(_)) => {
            true
        }
        Some(_) => sleeps(front),
        None if path.ends_with("/abort_request") || path.ends_with("/abort_requests") => false,
        None => sleeps(front) && method != Method::GET,
    }
}

fn sleeps(front: &Front) -> bool {
    front.command.hybrid_mode() == HybridMode::Sleep
}
