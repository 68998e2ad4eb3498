//! Errors as clients of SGLang understand them.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use robust_engine::Refused;
use robust_engine::serve::Refusal;

use crate::client::AskError;
use crate::state::Closed;

/// Why a request is answered with an error.
#[derive(Debug)]
pub struct Failure {
    refusal: Refusal,
    retry_after: Option<Duration>,
}

impl Failure {
    /// Another engine, or this one after the time, may serve it.
    pub fn unavailable(message: impl ToString, retry_after: Duration) -> Self {
        Self {
            refusal: Refusal::unavailable(message),
            retry_after: Some(retry_after),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            retry_after: None,
        }
    }
}

impl From<Closed> for Failure {
    fn from(closed: Closed) -> Self {
        Self::unavailable(&closed, closed.retry_after())
    }
}

impl From<AskError> for Failure {
    /// The engine is going, or hangs: its instance is somebody else's to judge, its requests go elsewhere.
    fn from(error: AskError) -> Self {
        Self::unavailable(error, Duration::from_secs(1))
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused.client {
            true => Refusal::bad(refused).into(),
            false => Self::unavailable(refused, Duration::from_secs(1)),
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.refusal.status());
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, axum::Json(self.refusal.body())).into_response();
        if let Some(after) = self.retry_after {
            let seconds = HeaderValue::from(after.as_secs().max(1));
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}
