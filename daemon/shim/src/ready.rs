//! Waits until the engine answers, and finds out what it is.

use std::time::{Duration, Instant};

use axum::http::{HeaderMap, Method};
use bytes::Bytes;
use robust_engine::{Dialect, Kind};
use robust_shared::job::{EngineKind, RolloutCommand};

use crate::client::{AskError, Client};

/// Pause between questions to an engine that starts: it takes a minute or more.
const AGAIN: Duration = Duration::from_millis(100);
/// How long one question may take.
const ANSWER: Duration = Duration::from_secs(5);

/// The engine did not become what the job file says.
#[derive(Debug, thiserror::Error)]
pub enum NotReady {
    /// It does not answer.
    #[error(
        "the engine is not up after {:.0} s (`rollout.command.ready.timeout_s`); last: {last}",
        after.as_secs_f64()
    )]
    Late {
        /// How long it was waited for.
        after: Duration,
        /// What came last.
        last: String,
    },
    /// It is another engine than the job file says.
    #[error("rollout.command.kind is \"{said}\", and the engine is {found}")]
    Other {
        /// What the job file says.
        said: Kind,
        /// What it says of itself.
        found: Dialect,
    },
}

/// The make that the job file names.
pub fn kind(command: &RolloutCommand) -> Kind {
    match command.kind {
        EngineKind::Sglang => Kind::Sglang,
        EngineKind::Vllm => Kind::Vllm,
        EngineKind::Robust => Kind::Robust,
    }
}

/// Returns how the engine is spoken to, as soon as it answers.
pub async fn wait(client: &Client, command: &RolloutCommand) -> Result<Dialect, NotReady> {
    let (began, limit) = (Instant::now(), command.ready.timeout());
    loop {
        let last = match answers(client, command.ready_path()).await {
            Ok(200..=299) => match detect(client, kind(command)).await {
                Some(dialect) => return checked(dialect, kind(command)),
                None => "it does not say what it is".to_owned(),
            },
            Ok(status) => format!("{} answered {status}", command.ready_path()),
            Err(error) => error.to_string(),
        };
        if began.elapsed() > limit {
            let after = began.elapsed();
            return Err(NotReady::Late { after, last });
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// What a GET of a route is answered with.
pub(crate) async fn answers(client: &Client, path: &str) -> Result<u16, AskError> {
    let none = HeaderMap::new();
    let asked = client.pass(Method::GET, path, &none, Bytes::new());
    let late = || AskError::Late {
        request: format!("GET {path}"),
        limit: ANSWER,
    };
    let answered = tokio::time::timeout(ANSWER, asked).await;
    Ok(answered.map_err(|_| late())??.status().as_u16())
}

/// An engine that does not say its version is spoken to as the newest one that was tried.
async fn detect(client: &Client, kind: Kind) -> Option<Dialect> {
    for question in Dialect::questions() {
        if let Ok(reply) = client.ask(&question, ANSWER).await
            && reply.is_success()
            && let Some(dialect) = Dialect::detect(question.path, &reply.body)
        {
            return Some(dialect);
        }
    }
    tracing::warn!(%kind, "the engine does not say its version");
    Some(Dialect::newest(kind))
}

fn checked(dialect: Dialect, said: Kind) -> Result<Dialect, NotReady> {
    if dialect.kind() != said {
        let found = dialect;
        return Err(NotReady::Other { said, found });
    }
    match dialect.caution() {
        Some(caution) => tracing::warn!("{caution}"),
        None => tracing::info!(%dialect, "the engine is up"),
    }
    Ok(dialect)
}
