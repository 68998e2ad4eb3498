//! An OpenTelemetry collector that keeps what it is sent, for tests.
#![allow(dead_code, clippy::unwrap_used)]
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum::serve::Listener;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest as Request;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::server::TlsStream;

/// How long a test waits for what must come.
pub const LONG: Duration = Duration::from_secs(60);

/// What was posted: head and body.
pub type Posted = (HeaderMap, Request);

/// A collector on a port of its own: hands on what is posted, and answers with `code`.
pub async fn collector(code: StatusCode) -> (String, UnboundedReceiver<Posted>) {
    let (router, posted) = taking(code);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(listener, router).await });
    (url, posted)
}

/// The same over TLS; the second value is its CA, in PEM.
pub async fn collector_over_tls() -> (String, String, UnboundedReceiver<Posted>) {
    let (router, posted) = taking(StatusCode::OK);
    let (ca, tls) = identity();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    tokio::spawn(async { axum::serve(Tls { listener, tls }, router).await });
    (url, ca, posted)
}

fn taking(code: StatusCode) -> (Router, UnboundedReceiver<Posted>) {
    type Handler = (UnboundedSender<Posted>, StatusCode);
    async fn take(State((to, code)): State<Handler>, head: HeaderMap, body: Bytes) -> StatusCode {
        // The test may be over.
        let _ = to.send((head, Request::decode(body).unwrap()));
        code
    }
    let (to, posted) = unbounded_channel();
    let router = Router::new()
        .route("/v1/traces", post(take))
        .with_state((to, code));
    (router, posted)
}

/// A CA made for this test, and who it says listens on 127.0.0.1.
pub fn identity() -> (String, TlsAcceptor) {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    let pem = ca.self_signed(&ca_key).unwrap().pem();
    let (own, own_key) = (["127.0.0.1".to_owned()], KeyPair::generate().unwrap());
    let own = CertificateParams::new(own).unwrap();
    let own = own.signed_by(&own_key, &Issuer::new(ca, ca_key)).unwrap();
    let key = PrivatePkcs8KeyDer::from(own_key.serialize_der());
    let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.der().clone()], key.into())
        .unwrap();
    (pem, TlsAcceptor::from(Arc::new(config)))
}

pub struct Tls {
    pub listener: TcpListener,
    pub tls: TlsAcceptor,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (tcp, from) = self.listener.accept().await.unwrap();
            // Whoever does not trust this CA goes away.
            if let Ok(stream) = self.tls.accept(tcp).await {
                return (stream, from);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
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
