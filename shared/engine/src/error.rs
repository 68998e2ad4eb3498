//! What engines say when they refuse.

use std::fmt;

use serde_json::Value;

/// Longest message that is passed on, in characters: an engine may answer with a stack trace.
const MAX_MESSAGE: usize = 500;

/// An engine did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Refused {
    /// The HTTP status, or the code that stood in its place; none where there was neither.
    pub status: Option<u16>,
    /// Whether the request is to blame: another engine would refuse it too.
    pub client: bool,
    /// What the engine said.
    pub message: String,
}

/// A reply that is not what this engine says by its documentation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the reply to {request} is unreadable: {reason}")]
pub struct Unreadable {
    /// The path that was asked.
    pub request: String,
    /// What is wrong with the reply.
    pub reason: String,
}

impl Unreadable {
    pub(crate) fn new(request: impl Into<String>, reason: impl fmt::Display) -> Self {
        Self {
            request: request.into(),
            reason: reason.to_string(),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "{status}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl Refused {
    /// The judgement of a failed request's status and body (C-12).
    pub fn of(status: u16, body: &str) -> Self {
        Self {
            status: Some(status),
            client: is_the_clients(status),
            message: message_of(body),
        }
    }
}

/// Whether a status says that the request is to blame. Those that say "later" or "not here" are
/// answered otherwise by another engine, or by this one in a moment.
pub(crate) fn is_the_clients(status: u16) -> bool {
    const LATER: [u16; 4] = [408, 409, 425, 429];
    (400..500).contains(&status) && !LATER.contains(&status)
}

/// What a refusal says, whichever of the shapes it has: SGLang's `{"error": "text"}` (schema),
/// `{"object": "error", "message"}` (validation), `{"error": {"message"}}` (refusal, and vLLM's)
/// and `{"success": false, "message"}` (control), or FastAPI's own `{"detail"}`.
pub(crate) fn message_of(body: &str) -> String {
    let json: Value = serde_json::from_str(body).unwrap_or_default();
    let said = [
        &json["error"]["message"],
        &json["error"],
        &json["message"],
        &json["detail"],
    ];
    let said = said.into_iter().find_map(Value::as_str);
    let said = said.unwrap_or(body).trim();
    match said.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}..", &said[..end]),
        None if said.is_empty() => "nothing was said".to_owned(),
        None => said.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_of_an_error_is_understood() {
        for (body, message) in [
            (r#"{"error": "unknown field `x`"}"#, "unknown field `x`"),
            (
                r#"{"object": "error", "message": "not a dictionary", "type": "Bad Request",
                    "param": null, "code": 400}"#,
                "not a dictionary",
            ),
            (r#"{"error": {"message": "too long"}}"#, "too long"),
            (
                r#"{"error": {"message": "Token id 5000 is out of vocabulary",
                    "type": "BadRequestError", "param": null, "code": 400}}"#,
                "Token id 5000 is out of vocabulary",
            ),
            (
                r#"{"success": false, "message": "no such path"}"#,
                "no such path",
            ),
            (r#"{"detail": "Not Found"}"#, "Not Found"),
            ("Internal Server Error", "Internal Server Error"),
            (" ", "nothing was said"),
        ] {
            assert_eq!(Refused::of(400, body).message, message);
        }
        let long = Refused::of(500, &"ä".repeat(1000)).message;
        assert_eq!(long.chars().count(), MAX_MESSAGE + 2);
    }

    #[test]
    fn only_what_every_engine_would_refuse_is_the_requests_fault() {
        for status in [400, 403, 404, 413, 422] {
            assert!(Refused::of(status, "").client, "{status}");
        }
        for status in [408, 429, 500, 502, 503, 504] {
            assert!(!Refused::of(status, "").client, "{status}");
        }
        assert_eq!(Refused::of(503, "busy").to_string(), "503: busy");
    }
}
