//! Asks the engine: whole replies with a deadline, and streams.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::http::request;
use hyper::{Method, Response, Uri};
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use robust_engine::Request;

use crate::connect::{Address, Connector};

/// Longest whole reply that is read: checksums of every parameter of a large model fit.
const MAX_REPLY_BYTES: usize = 64 << 20;

/// The body of a request to the engine.
pub type Body = Full<Bytes>;

/// The engine could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no connection, or it broke.
    #[error("asking the engine for {request}: {reason}")]
    Broken {
        /// What was asked.
        request: String,
        /// Why there is no answer.
        reason: String,
    },
    /// The engine did not answer in time.
    #[error("the engine did not answer {request} within {:.1} s", limit.as_secs_f64())]
    Late {
        /// What was asked.
        request: String,
        /// How long it was waited for.
        limit: Duration,
    },
}

/// A whole reply.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Its HTTP status.
    pub status: u16,
    /// Its body.
    pub body: String,
}

impl Reply {
    /// Whether the status says success.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// A client of one engine; clones share its connections.
#[derive(Clone)]
pub struct Client {
    http: legacy::Client<Connector, Body>,
    host: String,
    key: Option<HeaderValue>,
}

impl Client {
    /// A client that proves itself with `key`, if the engine wants one. Must be called on a runtime.
    pub fn new(address: Address, key: Option<HeaderValue>) -> Self {
        let host = address.host();
        let http = legacy::Client::builder(TokioExecutor::new()).build(Connector(address));
        Self { http, host, key }
    }

    /// Asks, and reads the whole reply. `limit` is for all of it.
    pub async fn ask(&self, request: &Request, limit: Duration) -> Result<Reply, AskError> {
        let asked = async {
            let response = self.open(request).await?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), MAX_REPLY_BYTES)
                .collect()
                .await;
            let body = body.map_err(|error| broken(request, error))?.to_bytes();
            let body = String::from_utf8_lossy(&body).into_owned();
            Ok(Reply { status, body })
        };
        let late = || AskError::Late {
            request: request.to_string(),
            limit,
        };
        tokio::time::timeout(limit, asked)
            .await
            .map_err(|_| late())?
    }

    /// Asks; the body of the reply is the caller's to read.
    pub async fn open(&self, request: &Request) -> Result<Response<Incoming>, AskError> {
        let method = match request.method {
            robust_engine::Method::Get => Method::GET,
            robust_engine::Method::Post => Method::POST,
        };
        let mut head = hyper::Request::builder().method(method);
        if let Some(kind) = request.content_type {
            head = head.header(header::CONTENT_TYPE, kind);
        }
        self.send(head, &request.target(), request.body.clone().into())
            .await
            .map_err(|reason| broken(request, reason))
    }

    /// Sends a request of somebody else's as it is, but for what names the connection.
    pub async fn pass(
        &self,
        method: Method,
        target: &str,
        headers: &header::HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, AskError> {
        let mut head = hyper::Request::builder().method(&method);
        for (name, value) in headers.iter().filter(|(name, _)| is_end_to_end(name)) {
            head = head.header(name, value);
        }
        let request = || format!("{method} {target}");
        self.send(head, target, body)
            .await
            .map_err(|reason| AskError::Broken {
                request: request(),
                reason,
            })
    }

    async fn send(
        &self,
        head: request::Builder,
        target: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>, String> {
        let uri: Result<Uri, _> = format!("http://{}{target}", self.host).parse();
        let mut head = head.uri(uri.map_err(|error| error.to_string())?);
        if let Some(key) = &self.key {
            head = head.header(header::AUTHORIZATION, key);
        }
        let request = head.body(Full::new(body)).map_err(|e| e.to_string())?;
        self.http
            .request(request)
            .await
            .map_err(|error| chain(&error))
    }
}

impl std::fmt::Debug for Client {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

/// Whether a header is for the engine, not for the connection to the shim. A client's key is the
/// shim's affair, the engine gets the one of the job file.
pub fn is_end_to_end(name: &header::HeaderName) -> bool {
    const CONNECTION: [header::HeaderName; 8] = [
        header::AUTHORIZATION,
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::HOST,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
    ];
    !CONNECTION.contains(name) && name != "keep-alive"
}

fn broken(request: &Request, reason: impl std::fmt::Display) -> AskError {
    AskError::Broken {
        request: request.to_string(),
        reason: reason.to_string(),
    }
}

/// An error with what caused it: hyper's own words say only that something failed.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}
