//! What every request to [`super::ControlService`] passes: rights, and the audit log.
//!
//! ```text
//!  socket (mode 0600) ── operator ──┐            ┌─ reads ────────────────────────► service
//!  TCP, operator's token ───────────┤──► Gate ──►├─ changes: logged ──► service ──► logged
//!  TCP, break-glass token ──────────┤
//!  TCP, viewer's token ── viewer ───┤            └─ a viewer's change, whatever a role asks: refused, logged if
//!  socket, a role's process ── role ┘               few are
//! ```
//! Rights are looked at before anything of the request's body is read, and a body has a bound.
//! By the method's name, for all of them ([`super::rights`]): one that nobody thought of is nobody's.
use super::revoked::Revoked;
use super::rights::{Caller, Rights, Way};
use crate::audit::Audit;
use prost::Message;
use robust_proto::requests::{Reader, of_call};
use robust_shared::wire::AuditResult;
use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tonic::body::Body;
use tonic::codegen::http::{Extensions, HeaderMap, Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;
use tonic::{Code, Status};

/// A request is some hundred bytes; one for a job's revision has some kilobytes.
pub(super) const MOST_BYTES: usize = 1 << 20;
/// It comes within this time.
const BODY_WITHIN: Duration = Duration::from_secs(20);

/// What a changing request says, for the log: without what is not given.
fn content(method: &str, message: &[u8]) -> String {
    of_call(method, AsJson(message)).unwrap_or_default()
}

/// A request as it came.
struct AsJson<'a>(&'a [u8]);

impl Reader for AsJson<'_> {
    type Said = String;

    fn read<M: Message + Default + serde::Serialize>(self) -> String {
        let value = M::decode(self.0).map(|m| serde_json::to_value(m).unwrap_or_default());
        let Ok(serde_json::Value::Object(mut fields)) = value else {
            return "not readable".to_owned();
        };
        if fields.is_empty() {
            // Nothing can be said with it.
            return String::new();
        }
        let empty = |v: &serde_json::Value| {
            v.is_null() || *v == false || *v == "" || v.as_array().is_some_and(Vec::is_empty)
        };
        fields.retain(|_, value| !empty(value));
        serde_json::Value::Object(fields).to_string()
    }
}

/// The service behind the gate.
#[derive(Clone, Debug)]
pub struct Gate<S> {
    inner: S,
    audit: Audit,
    revoked: Revoked,
}

impl<S> Gate<S> {
    /// In front of a service; who has one of these tokens is not let through.
    pub fn new(inner: S, audit: Audit, revoked: Revoked) -> Self {
        Self {
            inner,
            audit,
            revoked,
        }
    }
}

/// What a caller hears, of whom these are the extensions of a request, whose token is over or was taken back; none: it may be
/// told what everybody with a token is told.
pub fn refused_to(extensions: &Extensions, revoked: &Revoked) -> Option<Status> {
    let caller = extensions.get::<Caller>()?.clone().unless(revoked);
    let is_over = caller.rights() == Rights::Over;
    is_over.then(|| Status::permission_denied(Rights::Over.falls_short_of("who leads")))
}

impl<S: NamedService> NamedService for Gate<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Gate<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send,
    S: 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path();
        let method = path.rsplit('/').next().unwrap_or_default().to_owned();
        // The one that was polled ready serves; its copy waits for the next request.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        let caller = request.extensions().get::<Caller>().cloned();
        let audit = self.audit.clone();
        let Some(caller) = caller else {
            let unknown = Status::unauthenticated("nobody knows who calls");
            return Box::pin(async move { Ok(unknown.into_http()) });
        };
        let caller = caller.unless(&self.revoked);
        match caller.rights().to(&method) {
            Way::Through => Box::pin(inner.call(request)),
            Way::Logged => {
                let who = caller.who();
                Box::pin(async move { Ok(change(inner, audit, who, &method, request).await) })
            }
            Way::Refused => Box::pin(async move {
                let refused = refused(audit, &caller, name(&method));
                Ok(refused.await.into_http())
            }),
        }
    }
}

async fn change<S>(
    mut inner: S,
    audit: Audit,
    who: String,
    method: &str,
    request: Request<Body>,
) -> Response<Body>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let began = Instant::now();
    let (head, body) = request.into_parts();
    let body = match tokio::time::timeout(BODY_WITHIN, collect(body)).await {
        Ok(Ok(body)) => body,
        Ok(Err(status)) => return status.into_http(),
        Err(_) => {
            return Status::deadline_exceeded("the request did not come to its end").into_http();
        }
    };
    // gRPC's frame: compressed or not, and the length in 4 bytes, come first.
    let on = content(method, body.get(5..).unwrap_or_default());
    let (log, what) = (audit.clone(), name(method));
    let asked = tokio::task::spawn_blocking(move || log.asked(&who, &what, &on)).await;
    let asked = match asked {
        Ok(Ok(asked)) => asked,
        Ok(Err(error)) => return unlogged(&error).into_http(),
        Err(error) => return unlogged(&error).into_http(),
    };
    audit.settled().await;
    let request = Request::from_parts(head, Body::new(http_body_util::Full::from(body)));
    let answer = match inner.call(request).await {
        Ok(answer) => answer,
        Err(never) => match never {},
    };
    let (result, reason) = outcome(answer.headers());
    let written = tokio::task::spawn_blocking(move || {
        audit.came_of(&asked, result, &reason, began.elapsed())
    });
    if let Ok(Err(error)) = written.await {
        tracing::error!("a result is missing in the audit log: {error}");
    }
    answer
}

/// As on the command line: `restore-slot`.
fn name(method: &str) -> String {
    let mut name = String::new();
    for c in method.chars() {
        if c.is_ascii_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.push(c.to_ascii_lowercase());
    }
    name
}

fn unlogged(error: &dyn std::fmt::Display) -> Status {
    Status::unavailable(format!(
        "nothing is changed that cannot be written to the audit log: {error}"
    ))
}

/// What a caller hears who asks for more than it may.
async fn refused(audit: Audit, caller: &Caller, what: String) -> Status {
    let (who, why) = (caller.who(), caller.rights().falls_short_of(&what));
    let status = match caller.rights() {
        Rights::Operator | Rights::BreakGlass => Status::unimplemented(why.clone()),
        Rights::Viewer | Rights::Role | Rights::Over => Status::permission_denied(why.clone()),
    };
    let logged = tokio::task::spawn_blocking(move || audit.refused(&who, &what, &why)).await;
    if let Ok(Err(error)) = logged {
        tracing::error!("a refusal is missing in the audit log: {error}");
    }
    status
}

async fn collect(body: Body) -> Result<bytes::Bytes, Status> {
    use http_body_util::{BodyExt as _, LengthLimitError, Limited};
    match Limited::new(body, MOST_BYTES).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Status::resource_exhausted(format!(
            "a request has {MOST_BYTES} bytes at most"
        ))),
        Err(_) => Err(Status::invalid_argument("the request was cut off")),
    }
}

/// A refusal is in the headers of the answer; what went well says so only after its body.
fn outcome(headers: &HeaderMap) -> (AuditResult, String) {
    let Some(status) = Status::from_header_map(headers) else {
        return (AuditResult::Done, String::new());
    };
    let result = match status.code() {
        Code::Ok => AuditResult::Done,
        Code::DeadlineExceeded | Code::Internal | Code::Unavailable | Code::Unknown => {
            AuditResult::Failed
        }
        _ => AuditResult::Refused,
    };
    (result, status.message().to_owned())
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
