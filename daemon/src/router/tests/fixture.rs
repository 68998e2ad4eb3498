//! A router before engines that do as they are told, and a core that knows no more than who is
//! asked.
use super::super::{Limits, Parts, serve};
use crate::grpc::Token;
use crate::links::RouteEvent;
use crate::tell::Tell;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use robust_engine::Kind;
use robust_proto::v1;
use robust_shared::ids::Incarnation;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};

/// What the core was asked and holds.
#[derive(Default)]
pub struct Asked {
    /// The engine of each ticket that is not released; none while it waits.
    pub open: BTreeMap<u64, Option<usize>>,
    /// The engines in the order in which they were given.
    pub given: Vec<usize>,
    waiting: Vec<oneshot::Sender<v1::RouteReply>>,
}

/// A router, its core and its status.
pub struct Site {
    pub address: String,
    pub key: String,
    pub asked: Arc<Mutex<Asked>>,
    pub status: watch::Sender<Arc<v1::Status>>,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn running(state: &str) -> Arc<v1::Status> {
    let role = v1::RoleStatus {
        role: "rollout".to_owned(),
        admitted: true,
        ..Default::default()
    };
    Arc::new(v1::Status {
        state: state.to_owned(),
        roles: vec![role],
        ..Default::default()
    })
}

impl Site {
    /// Before engines at these addresses.
    pub async fn new(engines: Vec<String>) -> Self {
        Self::waiting(engines, Duration::from_secs(20)).await
    }

    /// The same, with another bound on the wait for an engine.
    pub async fn waiting(engines: Vec<String>, wait: Duration) -> Self {
        let limits = Limits {
            wait,
            ..Limits::default()
        };
        Self::within(limits, engines).await
    }

    /// The same, with other bounds.
    pub async fn within(limits: Limits, engines: Vec<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("router.key");
        let token = Token::load_or_create(&path).unwrap();
        let key = std::fs::read_to_string(&path).unwrap().trim().to_owned();
        let (routes, wanted) = mpsc::unbounded_channel();
        let asked = Arc::new(Mutex::new(Asked::default()));
        tokio::spawn(choose(wanted, engines, Arc::clone(&asked)));
        let (status, shown) = watch::channel(running("running"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let authority = robust_identity::Authority::of(b"job", "test").unwrap();
        let parts = Parts {
            client: robust_identity::EngineClient::of(authority.certificate()).unwrap(),
            key: token,
            engines: robust_identity::EngineKeys::of(b"job"),
            kind: Kind::Sglang,
            routes: Tell::into_channel(&routes),
            status: shown,
            limits: Limits {
                pause: Duration::from_millis(10),
                ..limits
            },
        };
        let server = tokio::spawn(serve(
            (listener, robust_http::Wire::Plain),
            parts,
            std::future::pending(),
        ));
        Self {
            address,
            key,
            asked,
            status,
            server,
        }
    }

    pub fn is_now(&self, state: &str) {
        self.status.send_replace(running(state));
    }

    pub fn given(&self) -> Vec<usize> {
        self.asked.lock().unwrap().given.clone()
    }

    pub fn open(&self) -> usize {
        self.asked.lock().unwrap().open.len()
    }

    /// What a client with the key is answered.
    pub async fn begin(&self, method: &str, path: &str, body: &str) -> Response {
        let key = format!("Bearer {}", self.key);
        self.send(method, path, body, Some(&key)).await
    }

    pub async fn send(&self, method: &str, path: &str, body: &str, key: Option<&str>) -> Response {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header(header::CONTENT_TYPE, "application/json");
        if let Some(key) = key {
            request = request.header(header::AUTHORIZATION, key);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        // A client of its own: its end is the end of its connection.
        let client = Client::builder(TokioExecutor::new()).build_http();
        client.request(request).await.unwrap().map(Body::new)
    }

    /// The same, whole.
    pub async fn generate(&self) -> (StatusCode, HeaderMap, String) {
        whole(
            self.begin("POST", "/generate", r#"{"input_ids": [1]}"#)
                .await,
        )
        .await
    }
}

/// The whole of a reply.
pub async fn whole(response: Response) -> (StatusCode, HeaderMap, String) {
    let (head, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    (head.status, head.headers, body)
}

/// The next piece of a reply.
pub async fn piece(body: &mut Body) -> Option<Result<String, axum::Error>> {
    let piece = super::super::upstream::next(body).await?;
    Some(piece.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap()))
}

async fn choose(
    mut wanted: mpsc::UnboundedReceiver<RouteEvent>,
    engines: Vec<String>,
    asked: Arc<Mutex<Asked>>,
) {
    while let Some(event) = wanted.recv().await {
        let mut asked = asked.lock().unwrap();
        match event {
            RouteEvent::WantedByClient {
                ticket,
                avoid,
                answer,
            } => {
                let load = |n: &usize| asked.open.values().filter(|e| **e == Some(*n)).count();
                let avoided = |n: &usize| avoid == Some(Incarnation(*n as u64 + 1));
                let chosen = (0..engines.len()).min_by_key(|n| (avoided(n), load(n), *n));
                asked.open.insert(ticket, chosen);
                let Some(chosen) = chosen else {
                    asked.waiting.push(answer);
                    continue;
                };
                asked.given.push(chosen);
                let _ = answer.send(v1::RouteReply {
                    ticket,
                    http_addr: engines[chosen].clone(),
                    rollout: chosen as u64 + 1,
                });
            }
            RouteEvent::Released { ticket, .. } => {
                asked.open.remove(&ticket);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// An engine that answers every request by this.
pub async fn engine<F, A>(answer: F) -> String
where
    F: Fn(HeaderMap, Bytes) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Response> + Send,
{
    let handler = move |headers: HeaderMap, body: Bytes| {
        let answer = answer.clone();
        async move { answer(headers, body).await }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let routes = Router::new().fallback(handler);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    address
}

/// One that answers every request with this status and body.
pub async fn says(status: u16, body: &'static str) -> String {
    engine(move |_, _| async move { reply(status, "application/json", Body::from(body)) }).await
}

/// One that takes every request and closes the connection.
pub async fn breaks_off() -> String {
    use tokio::io::AsyncReadExt;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut some = [0; 16];
            let _ = stream.read(&mut some).await;
        }
    });
    address
}

/// An address at which nobody listens.
pub async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

/// One whose events come from a channel; a broken one breaks the connection.
pub async fn streams(
    kind: &'static str,
) -> (String, mpsc::UnboundedSender<io::Result<&'static str>>) {
    let (say, said) = mpsc::unbounded_channel::<io::Result<&'static str>>();
    let said = Arc::new(Mutex::new(Some(said)));
    let address = engine(move |_, _| {
        let said = said.lock().unwrap().take().unwrap();
        let pieces = tokio_stream::wrappers::UnboundedReceiverStream::new(said);
        async move { reply(200, kind, Body::from_stream(pieces)) }
    });
    (address.await, say)
}

/// One reply.
pub fn reply(status: u16, kind: &'static str, body: Body) -> Response {
    let response = Response::builder().status(status);
    response
        .header(header::CONTENT_TYPE, kind)
        .body(body)
        .unwrap()
}

/// Waits until it is so.
pub async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
