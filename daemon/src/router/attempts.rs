//! What became of a request so far, and when it is enough.
use super::failure::{Failure, RETRY_AFTER_S};
use super::tickets::NoRoute;
use super::upstream::Failed;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use robust_shared::ids::Incarnation;

/// Engines that one request is given to at most.
const MAX_ENGINES: u32 = 3;
/// Engines that may break off while they have it: one request that no scheduler survives must not
/// take all of them along.
const MAX_BROKEN: u32 = 2;

/// The engines that failed one request.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    engines: u32,
    broken: u32,
    last: Option<(Incarnation, Failed)>,
}

impl Attempts {
    /// The engine that failed it last.
    pub fn failed(&self) -> Option<Incarnation> {
        self.last.as_ref().map(|(engine, _)| *engine)
    }

    /// One more failed it.
    pub fn note(&mut self, engine: Incarnation, failed: Failed) {
        let reason = failed.reason();
        tracing::debug!(%engine, reason, "a client's request is tried elsewhere");
        self.engines += 1;
        self.broken += u32::from(matches!(failed, Failed::Broken(_)));
        self.last = Some((engine, failed));
    }

    /// What the client is told when nobody is left to ask.
    pub fn without(self, none: NoRoute) -> Failure {
        let before = self.last.map(|(_, failed)| failed.reason());
        let before = before.map(|reason| format!("; the engine before it said: {reason}"));
        Failure::Nobody {
            none,
            before: before.unwrap_or_default(),
        }
    }

    /// What the client is told when no further engine is to be asked: the last engine's own refusal
    /// as it is, where it gave one.
    pub fn given_up(&mut self) -> Option<Result<Response, Failure>> {
        let engines = self.engines;
        if self.broken < MAX_BROKEN && engines < MAX_ENGINES {
            return None;
        }
        let (_, last) = self.last.take()?;
        let reason = last.reason();
        Some(match last {
            Failed::Refused { head, body } => {
                let mut response = Response::from_parts(*head, Body::from(body));
                let is_later = response.status() == StatusCode::SERVICE_UNAVAILABLE;
                if is_later && !response.headers().contains_key(header::RETRY_AFTER) {
                    let seconds = HeaderValue::from(RETRY_AFTER_S);
                    response.headers_mut().insert(header::RETRY_AFTER, seconds);
                }
                Ok(response)
            }
            _ if self.broken >= MAX_BROKEN => {
                let engines = self.broken;
                Err(Failure::Suspect { engines, reason })
            }
            _ => Err(Failure::Failed { engines, reason }),
        })
    }
}
