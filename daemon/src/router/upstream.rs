//! Asks one engine, up to the first byte of its reply.
use super::tickets::Route;
use axum::body::{Body, Bytes};
use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header, request, response,
};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use robust_engine::EngineAddr;
use robust_identity::{EngineClient, EngineKey, EngineKeys, Pooled};
use std::convert::Infallible;
use std::time::Duration;

/// An engine on a machine that answers is connected to at once.
const CONNECT: Duration = Duration::from_secs(3);
/// A machine that is gone says nothing: it is asked after so long without a byte, and again.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_AGAIN: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMES: u32 = 3;
/// What is kept of the reply of an engine that failed.
const MAX_REFUSAL_BYTES: usize = 1 << 20;
/// How long that may take to come.
const REFUSAL: Duration = Duration::from_secs(5);

/// A client's request, kept whole: the next engine may be asked the same.
#[derive(Debug)]
pub(super) struct Asked {
    method: Method,
    target: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Asked {
    /// The request, less what was for the router.
    pub fn new(head: request::Parts, body: Bytes) -> Self {
        let target = head.uri.path_and_query();
        let target = target.map_or("/", |target| target.as_str()).to_owned();
        let mut headers = end_to_end(head.headers);
        // The key is the router's; an event that ends a broken stream is not compressed.
        for name in [
            header::AUTHORIZATION,
            header::ACCEPT_ENCODING,
            header::EXPECT,
        ] {
            headers.remove(name);
        }
        Self {
            method: head.method,
            target,
            headers,
            body,
        }
    }
}

/// A reply whose first byte is there, or that has none.
#[derive(Debug)]
pub(super) struct Reply {
    /// Its status and headers, less those of the connection.
    pub head: response::Parts,
    /// What came first.
    pub first: Bytes,
    /// What is still to come.
    pub rest: Body,
}

/// An engine did not answer, or said that another one, or a later moment, may be better.
#[derive(Debug)]
pub(super) enum Failed {
    /// It was not reached.
    Unreached(String),
    /// The connection broke while it had the request.
    Broken(String),
    /// It refused.
    Refused {
        /// The reply's status and headers.
        head: Box<response::Parts>,
        /// The reply.
        body: Bytes,
    },
}

impl Failed {
    /// What became of the request, in words.
    pub fn reason(&self) -> String {
        match self {
            Failed::Unreached(reason) | Failed::Broken(reason) => reason.clone(),
            Failed::Refused { head, body } => {
                let body = String::from_utf8_lossy(body);
                robust_engine::Refused::of(head.status.as_u16(), &body).to_string()
            }
        }
    }
}

/// A client by whom the job believes now.
type Http = legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

fn client(engines: &EngineClient) -> Http {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_AGAIN));
    connector.set_keepalive_retries(Some(KEEPALIVE_TIMES));
    connector.enforce_http(false);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(engines.config())
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    legacy::Client::builder(TokioExecutor::new()).build(connector)
}

/// A client of every engine.
#[derive(Debug)]
pub(super) struct Upstream {
    http: Pooled<Http>,
    keys: EngineKeys,
}

impl Upstream {
    pub fn new(keys: EngineKeys, engines: &EngineClient) -> Self {
        let own = engines.clone();
        let make = move |_: Option<&EngineClient>| Ok::<_, Infallible>(client(&own));
        let Ok(http) = Pooled::of(Some(engines.clone()), make);
        Self { http, keys }
    }

    /// Asks; what is to be tried elsewhere is an error.
    pub async fn ask(&self, to: &Route, asked: &Asked) -> Result<Reply, Failed> {
        let key = self.keys.of_engine(to.engine.0);
        let request = request_to(&to.http_addr, &key, asked).map_err(Failed::Unreached)?;
        let http = self.http.now();
        let http = http.map_err(|error| Failed::Unreached(error.to_string()))?;
        let response = http.request(request).await;
        let response = response.map_err(|error| match error.is_connect() {
            true => Failed::Unreached(chain(&error)),
            false => Failed::Broken(chain(&error)),
        })?;
        let (mut head, body) = response.into_parts();
        head.headers = end_to_end(head.headers);
        let mut rest = Body::new(body);
        if is_to_be_tried_elsewhere(head.status) {
            let body = Limited::new(rest, MAX_REFUSAL_BYTES).collect();
            let body = tokio::time::timeout(REFUSAL, body).await;
            // Without what it says the status is still an answer.
            let body = body.ok().and_then(Result::ok).map(|body| body.to_bytes());
            return Err(Failed::Refused {
                head: Box::new(head),
                body: body.unwrap_or_default(),
            });
        }
        let first = next(&mut rest).await.transpose();
        let first = first.map_err(|error| Failed::Broken(chain(&error)))?;
        Ok(Reply {
            head,
            first: first.unwrap_or_default(),
            rest,
        })
    }
}

/// The next bytes of a body; none at its end.
pub(super) async fn next(body: &mut Body) -> Option<Result<Bytes, axum::Error>> {
    loop {
        match body.frame().await? {
            Ok(frame) => match frame.into_data() {
                Ok(bytes) if !bytes.is_empty() => return Some(Ok(bytes)),
                _ => {}
            },
            Err(error) => return Some(Err(error)),
        }
    }
}

fn request_to(addr: &str, key: &EngineKey, asked: &Asked) -> Result<Request<Full<Bytes>>, String> {
    let uri: Result<Uri, _> = EngineAddr::of(addr).url(&asked.target).parse();
    let uri = uri.map_err(|error| format!("the engine's address `{addr}`: {error}"))?;
    let mut request = Request::new(Full::new(asked.body.clone()));
    *request.method_mut() = asked.method.clone();
    *request.uri_mut() = uri;
    *request.headers_mut() = asked.headers.clone();
    let mut shown = HeaderValue::try_from(key.bearer()).map_err(|error| error.to_string())?;
    shown.set_sensitive(true);
    request.headers_mut().insert(header::AUTHORIZATION, shown);
    Ok(request)
}

/// What is wrong with the engine or the moment, not with the request.
fn is_to_be_tried_elsewhere(status: StatusCode) -> bool {
    let later = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
    status.is_server_error() || later.contains(&status)
}

/// The headers that are not the connection's.
fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    let named = headers.get_all(header::CONNECTION).iter();
    let named: Vec<HeaderName> = named
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    let connection = [
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::HOST,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        HeaderName::from_static("keep-alive"),
    ];
    for name in connection.into_iter().chain(named) {
        headers.remove(name);
    }
    headers
}

/// An error with what caused it: hyper's own words say only that something failed.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(&format!(": {cause_text}"));
        }
        source = cause.source();
    }
    text
}
