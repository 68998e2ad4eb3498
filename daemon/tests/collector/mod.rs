//! An OpenTelemetry collector that keeps what it is sent, for tests.
#![allow(dead_code, clippy::unwrap_used)]
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest as Request;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// How long a test waits for what must come.
pub const LONG: Duration = Duration::from_secs(60);

/// What was posted: head and body.
pub type Posted = (HeaderMap, Request);

/// A collector on a port of its own: hands on what is posted, and answers with `code`.
pub async fn collector(code: StatusCode) -> (String, UnboundedReceiver<Posted>) {
    type Handler = (UnboundedSender<Posted>, StatusCode);
    async fn take(State((to, code)): State<Handler>, head: HeaderMap, body: Bytes) -> StatusCode {
        // The test may be over.
        let _ = to.send((head, Request::decode(body).unwrap()));
        code
    }
    let (to, posted) = unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new()
        .route("/v1/traces", post(take))
        .with_state((to, code));
    tokio::spawn(async { axum::serve(listener, router).await });
    (url, posted)
}

/// The next request, when it comes.
pub async fn next(posted: &mut UnboundedReceiver<Posted>) -> Posted {
    tokio::time::timeout(LONG, posted.recv())
        .await
        .unwrap()
        .unwrap()
}

/// A value among attributes, as text.
pub fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|a| a.key == key);
    let value = found.unwrap_or_else(|| unreachable!("{key} in {attributes:?}"));
    match &value.value {
        Some(AnyValue {
            value: Some(Value::StringValue(text)),
        }) => text.clone(),
        Some(AnyValue {
            value: Some(Value::IntValue(number)),
        }) => number.to_string(),
        other => unreachable!("{other:?}"),
    }
}

/// All spans of a request.
pub fn spans_of(request: &Request) -> Vec<Span> {
    let scopes = request
        .resource_spans
        .iter()
        .flat_map(|r| r.scope_spans.clone());
    scopes.flat_map(|s| s.spans).collect()
}

/// Those without a parent: an incident each.
pub fn roots(request: &Request) -> Vec<Span> {
    let mut all = spans_of(request);
    all.retain(|s| s.parent_span_id.is_empty());
    all
}
