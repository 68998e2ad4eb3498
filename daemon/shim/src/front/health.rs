//! Whether the engine generates. That it answers some other question proves nothing: vLLM's `/health`
//! says 200 while its workers stand still.

use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use robust_http::Keyless;
use robust_shared::job::ProbeBy;

use super::{Failure, Front, Shared};
use crate::state::{Closed, Weights};

/// Tokens that went out so shortly before are a sign of life.
const RECENT: Duration = Duration::from_secs(1);
/// The probe's own deadline is the daemon's; this one only ends what nobody waits for any more.
const LONGEST: Duration = Duration::from_secs(60);
/// The token that the probe continues; every model has one of this number.
const PROBE_TOKEN: u32 = 0;

/// As `/health_generate`. Who shows no key has nothing generated.
pub(super) async fn on_health(state: Shared, keyless: Option<Extension<Keyless>>) -> Response {
    if keyless.is_none() {
        return on_health_generate(state).await;
    }
    match state.gate.state().weights() {
        Weights::Starting => Failure::from(Closed::Starting).into_response(),
        _ => (StatusCode::OK, "up").into_response(),
    }
}

pub(super) async fn on_health_generate(State(front): Shared) -> Response {
    match check(&front).await {
        Ok(how) => (StatusCode::OK, how).into_response(),
        Err(failure) => failure.into_response(),
    }
}

async fn check(front: &Front) -> Result<&'static str, Failure> {
    let state = front.gate.state();
    if state.is_lent() && state.weights() != Weights::Starting {
        // Asleep it would die of a probe.
        return Ok("its rank has the slot");
    }
    if let Some(by) = state.paused_by() {
        // A paused engine answers no probe, and SGLang calls itself unhealthy after 20 s of one. Its
        // processes are watched.
        tracing::debug!(by, "not probed: it is paused");
        return Ok("paused");
    }
    match state.weights() {
        Weights::Starting => return Err(Closed::Starting.into()),
        Weights::Loading(_) => return Ok("loading weights"),
        Weights::Stale | Weights::Serving(_) => {}
    }
    if state.running() > 0 && front.gate.generated_within(RECENT) {
        return Ok("generating");
    }
    let dialect = front.dialect()?;
    let path = front.command.health.path.clone();
    if let (ProbeBy::Path, Some(path)) = (front.command.health.by, path) {
        let none = axum::http::HeaderMap::new();
        let asked = front.client.pass(Method::GET, &path, &none, Bytes::new());
        let status = asked.await?.status();
        return match status.is_success() {
            true => Ok("answers"),
            false => Err(robust_engine::Refused::of(status.as_u16(), &path).into()),
        };
    }
    static PROBES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = PROBES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let call = dialect.health_by_generation(&format!("probe-{number}"), PROBE_TOKEN);
    let reply = front.client.ask(&call.request, LONGEST).await?;
    call.judge(reply.status, &reply.body)?;
    Ok("generates")
}
