//! What every request to [`super::ControlService`] passes: rights, and the audit log.
//!
//! ```text
//!  socket (mode 0600) ── operator ──┐            ┌─ reads ────────────────────────► service
//!  TCP, operator's token ───────────┤──► Gate ──►├─ changes: logged ──► service ──► logged
//!  TCP, viewer's token ── viewer ───┘            └─ a viewer's change: logged, refused
//! ```
//! By the method's name, for all of them: one that nobody thought of is a change, so that it is the
//! operators' and logged.
use crate::audit::Audit;
use prost::Message;
use robust_proto::v1;
use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Instant;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, Request, Response};
use tonic::codegen::{BoxFuture, Service};
use tonic::server::NamedService;
use tonic::transport::server::{TcpConnectInfo, UdsConnectInfo};
use tonic::{Code, Status};

/// What the shown token allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rights {
    /// Everything.
    #[default]
    Operator,
    /// To look.
    Viewer,
}

/// Methods that change nothing.
const READS: &[&str] = &[
    "GetStatus",
    "Watch",
    "Phases",
    "Events",
    "GetReport",
    "Trajectories",
    "CheckStore",
    "GetRules",
    "Audit",
    "GetHistory",
    "Logs",
];

/// What a changing request says, for the log: without what is not given.
fn content(method: &str, message: &[u8]) -> String {
    match method {
        "Inject" => json::<v1::InjectRequest>(message),
        "Disarm" => json::<v1::DisarmRequest>(message),
        "Quarantine" | "Readmit" => json::<v1::QuarantineRequest>(message),
        "Scale" => json::<v1::ScaleRequest>(message),
        "Update" => json::<v1::UpdateRequest>(message),
        "Cordon" => json::<v1::CordonRequest>(message),
        "RestoreSlot" => json::<v1::RestoreSlotRequest>(message),
        _ => String::new(),
    }
}

fn json<M: Message + Default + serde::Serialize>(message: &[u8]) -> String {
    let value = M::decode(message).map(|m| serde_json::to_value(m).unwrap_or_default());
    let Ok(serde_json::Value::Object(mut fields)) = value else {
        return "not readable".to_owned();
    };
    let empty = |v: &serde_json::Value| {
        v.is_null() || *v == false || *v == "" || v.as_array().is_some_and(Vec::is_empty)
    };
    fields.retain(|_, value| !empty(value));
    serde_json::Value::Object(fields).to_string()
}

/// The service behind the gate.
#[derive(Clone, Debug)]
pub struct Gate<S> {
    inner: S,
    audit: Audit,
}

impl<S> Gate<S> {
    /// In front of a service.
    pub fn new(inner: S, audit: Audit) -> Self {
        Self { inner, audit }
    }
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
        if READS.contains(&method.as_str()) {
            return Box::pin(inner.call(request));
        }
        let audit = self.audit.clone();
        Box::pin(async move { Ok(change(inner, audit, &method, request).await) })
    }
}

async fn change<S>(
    mut inner: S,
    audit: Audit,
    method: &str,
    request: Request<Body>,
) -> Response<Body>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let began = Instant::now();
    let who = who(&request);
    let rights = request.extensions().get::<Rights>().copied();
    let (head, body) = request.into_parts();
    let Ok(body) = collect(body).await else {
        return Status::invalid_argument("the request was cut off").into_http();
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
    let answer = match rights.unwrap_or_default() {
        Rights::Viewer => {
            let why = format!(
                "{} needs an operator's rights; this token may only look",
                asked.what
            );
            Status::permission_denied(why).into_http()
        }
        Rights::Operator => {
            let request = Request::from_parts(head, Body::new(http_body_util::Full::from(body)));
            match inner.call(request).await {
                Ok(answer) => answer,
                Err(never) => match never {},
            }
        }
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

async fn collect(body: Body) -> Result<bytes::Bytes, Status> {
    use http_body_util::BodyExt as _;
    Ok(body.collect().await?.to_bytes())
}

/// A refusal is in the headers of the answer; what went well says so only after its body.
fn outcome(headers: &HeaderMap) -> (&'static str, String) {
    let Some(status) = Status::from_header_map(headers) else {
        return ("done", String::new());
    };
    let result = match status.code() {
        Code::Ok => "done",
        Code::DeadlineExceeded | Code::Internal | Code::Unavailable | Code::Unknown => "failed",
        _ => "refused",
    };
    (result, status.message().to_owned())
}

/// Who is at the other end, by the kernel's word or by the token shown.
fn who(request: &Request<Body>) -> String {
    let extensions = request.extensions();
    if let Some(tcp) = extensions.get::<TcpConnectInfo>() {
        let token = match extensions.get::<Rights>() {
            Some(Rights::Viewer) => "viewer's",
            _ => "operator's",
        };
        let from = tcp.remote_addr();
        let from = from.map_or_else(|| "somewhere".to_owned(), |a| a.to_string());
        return format!("the {token} token from {from}");
    }
    let peer = extensions.get::<UdsConnectInfo>();
    let Some(peer) = peer.and_then(|p| p.peer_cred) else {
        return "the socket".to_owned();
    };
    let uid = peer.uid();
    let name = user_name(uid).map_or_else(String::new, |name| format!(" ({name})"));
    match peer.pid() {
        Some(pid) => format!("uid {uid}{name}, pid {pid}"),
        None => format!("uid {uid}{name}"),
    }
}

/// As the machine's own list has it; users of a directory service stay numbers.
fn user_name(uid: u32) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Of the calls that change something.
    const CHANGES: &[&str] = &[
        "Inject",
        "Disarm",
        "Quarantine",
        "Readmit",
        "Scale",
        "Update",
        "Cordon",
        "RestoreSlot",
        "Stop",
        "Pause",
        "Resume",
        "Restart",
    ];

    #[test]
    fn every_method_is_known_to_be_a_read_or_a_change() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../proto/robust/v1/control.proto"
        );
        let text = std::fs::read_to_string(path).unwrap();
        let methods = text.lines().filter_map(|l| l.trim().strip_prefix("rpc "));
        let methods: Vec<&str> = methods.map(|m| m.split('(').next().unwrap()).collect();
        assert!(methods.len() > 12, "{methods:?}");
        for method in methods {
            let (read, change) = (READS.contains(&method), CHANGES.contains(&method));
            assert!(
                read != change,
                "{method}: say in one of the two lists what it is"
            );
        }
    }

    #[test]
    fn the_log_shows_what_was_asked_without_what_was_not_given() {
        let request = v1::InjectRequest {
            fault: "kill".to_owned(),
            role: "trainer".to_owned(),
            index: Some(0),
            ..v1::InjectRequest::default()
        };
        assert_eq!(
            content("Inject", &request.encode_to_vec()),
            r#"{"fault":"kill","index":0,"role":"trainer","wait_timeout_ms":0}"#
        );
        assert_eq!(content("Inject", b"\xff\xff"), "not readable");
        assert_eq!(content("Stop", b""), "");
        assert_eq!(
            (name("RestoreSlot"), name("Stop")),
            ("restore-slot".into(), "stop".into())
        );
    }
}
