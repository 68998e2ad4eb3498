//! Why clients are refused, in words and shapes that clients of SGLang and OpenAI read.
use super::tickets::NoRoute;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// When a client may ask again, where that may help, in seconds.
pub(super) const RETRY_AFTER_S: u32 = 1;

/// A request that no engine answers.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// It is nobody's who may ask.
    #[error(
        "Unauthorized: send `Authorization: Bearer` with the content of the state directory's file \
         `router.key`"
    )]
    Unauthorized,
    /// It would change an engine.
    #[error(
        "{path} is not passed on: it changes an engine, and the engines belong to the job; an \
         engine of your own command can be asked at its own address"
    )]
    Changes {
        /// What was asked.
        path: String,
    },
    /// Nothing of that name is passed on.
    #[error("{method} {path} is not passed on; to {engines} of this job go {routes}")]
    NoRoute {
        /// How it was asked.
        method: String,
        /// What was asked.
        path: String,
        /// The make of the engines.
        engines: &'static str,
        /// What is passed on.
        routes: String,
    },
    /// Too many others are served.
    #[error("{most} requests are under way, more are not taken")]
    Full {
        /// The most at a time.
        most: usize,
    },
    /// The client took too long to send it.
    #[error("the request's body did not come in time")]
    SlowUpload,
    /// It is too long.
    #[error("the request's body has more than {most} bytes")]
    TooLarge {
        /// The most bytes.
        most: usize,
    },
    /// It broke off.
    #[error("reading the request's body: {reason}")]
    Unreadable {
        /// Why it cannot be read.
        reason: String,
    },
    /// No engine may take it.
    #[error("{none}{before}")]
    Nobody {
        /// Why.
        none: NoRoute,
        /// What an engine said to it before, or nothing.
        before: String,
    },
    /// Every engine that was asked failed.
    #[error("{engines} engines failed the request, the last one so: {reason}")]
    Failed {
        /// How many were asked.
        engines: u32,
        /// What became of the last.
        reason: String,
    },
    /// Engines went away with it.
    #[error(
        "{engines} engines broke off while they had this request, the last one so: {reason}; it is \
         given to no other"
    )]
    Suspect {
        /// How many.
        engines: u32,
        /// What became of the last.
        reason: String,
    },
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Failure::Unauthorized => StatusCode::UNAUTHORIZED,
            Failure::Changes { .. } => StatusCode::FORBIDDEN,
            Failure::NoRoute { .. } => StatusCode::NOT_FOUND,
            Failure::Full { .. } => StatusCode::TOO_MANY_REQUESTS,
            Failure::SlowUpload => StatusCode::REQUEST_TIMEOUT,
            Failure::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Failure::Unreadable { .. } => StatusCode::BAD_REQUEST,
            Failure::Nobody { .. } | Failure::Failed { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Failure::Suspect { .. } => StatusCode::BAD_GATEWAY,
        }
    }

    fn body(&self) -> Value {
        let message = self.to_string();
        match self {
            // As SGLang says it.
            Failure::Unauthorized => json!({"error": message}),
            _ => error(self.status(), &message),
        }
    }
}

/// The object in which both SGLang and OpenAI's clients look for an error.
pub(super) fn error(status: StatusCode, message: &str) -> Value {
    let name = status.canonical_reason().unwrap_or("Error");
    let error = json!({
        "message": message,
        "type": name.replace(' ', ""),
        "param": null,
        "code": status.as_u16(),
    });
    json!({"error": error})
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = (self.status(), Json(self.body())).into_response();
        let headers = response.headers_mut();
        match self {
            Failure::Unauthorized => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            Failure::Full { .. } | Failure::Nobody { .. } | Failure::Failed { .. } => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
            }
            _ => {}
        }
        response
    }
}
