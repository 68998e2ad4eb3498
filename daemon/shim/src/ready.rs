//! Waits until the engine answers, and finds out what it is.

use std::time::{Duration, Instant};

use axum::http::{HeaderMap, Method};
use bytes::Bytes;
use robust_engine::{Dialect, Kind, Request};
use robust_shared::job::{EngineKind, RolloutCommand};

use crate::client::{AskError, Client};

/// Pause between questions to an engine that starts: it takes a minute or more.
const AGAIN: Duration = Duration::from_millis(100);
/// How long one question may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long the first token may take: kernels are compiled for it.
const GENERATION: Duration = Duration::from_secs(300);

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
    /// It does not offer what it is asked for tokens by.
    #[error("the engine answers {request} with {status}{}", cure(*.kind))]
    NoGeneration {
        /// What was asked.
        request: String,
        /// What it answered.
        status: u16,
        /// Its make.
        kind: Kind,
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
            Ok(200..=299) => {
                let dialect = checked(detect(client, kind(command)).await, kind(command))?;
                match generates(client, &dialect).await? {
                    Ok(()) => return Ok(dialect),
                    Err(not_yet) => not_yet,
                }
            }
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

/// Whether it generates a token, or why not yet. That it answers some other question proves nothing.
async fn generates(client: &Client, dialect: &Dialect) -> Result<Result<(), String>, NotReady> {
    let call = dialect.health_by_generation("ready", 0);
    match client.ask(&call.request, GENERATION).await {
        Ok(reply) if matches!(reply.status, 403..=405) => Err(NotReady::NoGeneration {
            request: call.request.to_string(),
            status: reply.status,
            kind: dialect.kind(),
        }),
        Ok(reply) => Ok(call
            .judge(reply.status, &reply.body)
            .map_err(|e| e.to_string())),
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// What a user can do about an engine that has no such route.
fn cure(kind: Kind) -> String {
    let flag = flag(kind);
    let give = |flag| format!(": give it `{flag}` in `rollout.command.argv`");
    flag.map(give).unwrap_or_default()
}

/// The option by which an engine offers the route for tokens; none where it always does.
pub(crate) fn flag(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Vllm => Some("--enable-scale-out"),
        Kind::Sglang | Kind::Robust => None,
    }
}

/// An engine that does not say its version is spoken to as the newest one that was tried.
async fn detect(client: &Client, kind: Kind) -> Dialect {
    // Asked for `/server_info`, vLLM looks at every package of its environment, for seconds.
    let others = |question: &Request| kind != Kind::Vllm || question.path == "/version";
    for question in Dialect::questions().into_iter().filter(others) {
        if let Ok(reply) = client.ask(&question, ANSWER).await
            && reply.is_success()
            && let Some(dialect) = Dialect::detect(question.path, &reply.body)
        {
            return dialect;
        }
    }
    tracing::warn!(%kind, "the engine does not say its version");
    Dialect::newest(kind)
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
