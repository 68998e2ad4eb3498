//! Connections, each within its bounds.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::middleware::from_fn_with_state;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

use crate::callers::{Caller, Callers};
use crate::door::Door;

/// How long a connection with a key may say nothing between two requests, and within a request's head. Longer
/// than clients keep idle connections (90 s): who uses one must not find it closed.
pub const IDLE: Duration = Duration::from_secs(120);
/// After an error that is the machine's own, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves these routes behind a door, on a non-blocking listener, until the runtime ends.
///
/// # Errors
/// The listener cannot be used.
pub async fn serve(listener: std::net::TcpListener, door: Door, routes: Router) -> io::Result<()> {
    let routes = routes.layer(from_fn_with_state(door, Door::pass));
    let listener = TcpListener::from_std(listener)?;
    let callers = Callers::default();
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(taken) => taken,
            Err(error) => {
                tracing::debug!(%error, "no connection can be taken");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(caller) = callers.enter(from.ip()) else {
            tracing::debug!(%from, "closed: there are too many connections");
            continue;
        };
        tokio::spawn(converse(stream, caller, routes.clone()));
    }
}

async fn converse(stream: TcpStream, caller: Arc<Caller>, routes: Router) {
    // Tokens go out one by one; each is to leave at once.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "TCP_NODELAY");
    }
    let of = Arc::clone(&caller);
    let routes = routes.map_request(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&of));
        request.map(Body::new)
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(IDLE);
    let served = server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    tokio::select! {
        served = served => if let Err(error) = served {
            tracing::debug!(%error, "a connection broke");
        },
        () = caller.without_key() => {}
    }
}
