//! How SGLang says no.

use serde_json::{Value, json};

/// Why a request is answered with an error. SGLang has three shapes of JSON for it, by who noticed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The body is no JSON object at all.
    #[error("the body: {0}")]
    NotAnObject(String),
    /// A key has a value of another type than it should.
    #[error("{key}: {what}")]
    Schema {
        /// The key.
        key: String,
        /// What is wrong with its value.
        what: String,
    },
    /// A key inside `sampling_params` that SGLang does not know.
    #[error("unknown field `{key}`, expected one of {known}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The keys there are.
        known: String,
    },
    /// A key that SGLang knows and this engine has no means for.
    #[error("{key} is not supported by the built-in rollout: {instead}")]
    Unsupported {
        /// The key.
        key: String,
        /// What can be done.
        instead: String,
    },
    /// A value that cannot be served, or a state in which nothing is.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Why.
        message: String,
    },
    /// A control call that this engine leaves to somebody else.
    #[error("{0}")]
    Elsewhere(String),
}

impl Refusal {
    /// A value that cannot be served.
    pub fn bad(message: impl ToString) -> Self {
        Refusal::Refused {
            status: 400,
            message: message.to_string(),
        }
    }

    /// Nothing is served now; another engine, or this one later, may.
    pub fn unavailable(message: impl ToString) -> Self {
        Refusal::Refused {
            status: 503,
            message: message.to_string(),
        }
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Refusal::Refused { status, .. } => *status,
            _ => 400,
        }
    }

    /// The body of the reply.
    pub fn body(&self) -> Value {
        let message = self.to_string();
        match self {
            Refusal::NotAnObject(_) => json!({
                "object": "error",
                "message": message,
                "type": "Bad Request",
                "param": null,
                "code": self.status(),
            }),
            Refusal::Schema { .. } | Refusal::UnknownKey { .. } => json!({"error": message}),
            Refusal::Unsupported { .. } | Refusal::Refused { .. } => {
                json!({"error": {"message": message}})
            }
            Refusal::Elsewhere(_) => json!({"success": false, "message": message}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Refused;

    #[test]
    fn every_refusal_is_understood_by_our_own_client() {
        for refusal in [
            Refusal::NotAnObject("EOF".into()),
            Refusal::Schema {
                key: "input_ids".into(),
                what: "expected a list".into(),
            },
            Refusal::bad("no"),
            Refusal::unavailable("later"),
            Refusal::Elsewhere("weights come through the daemon".into()),
        ] {
            let read = Refused::of(refusal.status(), &refusal.body().to_string());
            assert_eq!(read.message, refusal.to_string());
            assert_eq!(read.client, refusal.status() == 400);
        }
    }
}
