//! Connections, each within its bounds.

use std::io;
use std::pin::pin;
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
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::callers::{Caller, Callers, Closed};
use crate::door::Door;

/// How long a connection with a key may say nothing between two requests, and within a request's head. Longer
/// than clients keep idle connections (90 s): who uses one must not find it closed.
pub const IDLE: Duration = Duration::from_secs(120);
/// After an error that is the machine's own, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// How long an answer that is under way may still take where nobody has shown a key in time.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Serves these routes behind a door, on a non-blocking listener, until the runtime ends.
///
/// # Errors
/// The listener cannot be used.
pub async fn serve(listener: std::net::TcpListener, door: Door, routes: Router) -> io::Result<()> {
    let routes = routes.layer(from_fn_with_state(door, Door::pass));
    let listener = TcpListener::from_std(listener)?;
    serve_until(listener, routes, std::future::pending()).await;
    Ok(())
}

/// Serves these routes until the end, and then whoever is answered at that moment; dropped, it ends at once. Which
/// callers have a key is for the routes to say, with [`Caller::proven_by`]: all others are strangers.
pub async fn serve_until(listener: TcpListener, routes: Router, end: impl Future<Output = ()>) {
    let callers = Callers::default();
    let mut conversations = JoinSet::new();
    // Nothing is sent: that it is dropped is the word.
    let (going_on, ended) = watch::channel(());
    let mut end = pin!(end);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = conversations.join_next() => continue,
            () = &mut end => break,
        };
        let (stream, from) = match accepted {
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
        conversations.spawn(converse(stream, caller, routes.clone(), ended.clone()));
    }
    drop((listener, going_on));
    while conversations.join_next().await.is_some() {}
}

async fn converse(
    stream: TcpStream,
    caller: Arc<Caller>,
    routes: Router,
    mut ended: watch::Receiver<()>,
) {
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
    let mut served = pin!(served);
    let result = tokio::select! {
        result = served.as_mut() => result,
        _ = ended.changed() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
        closed = caller.without_key() => {
            // Room is made at once: who takes it would else be counted beside whoever gives it.
            if closed == Closed::ForAnother {
                return;
            }
            served.as_mut().graceful_shutdown();
            match tokio::time::timeout(LAST_WORDS, served).await {
                Ok(result) => result,
                Err(_) => return,
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection broke");
    }
}
