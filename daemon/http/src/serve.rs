//! Connections, each within its bounds.

use std::io;
use std::net::IpAddr;
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
use robust_identity::{EngineServer, FIRST_BYTE};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::server::TlsStream;
use tower::ServiceExt;

use crate::callers::{Caller, Callers, Closed};
use crate::door::Door;

/// How long a connection with a key may say nothing between two requests, and within a request's head. Longer
/// than clients keep idle connections (90 s): who uses one must not find it closed.
pub const IDLE: Duration = Duration::from_secs(120);
/// After an error that is the machine's own, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// What is said to a caller of another machine that speaks in clear.
const SPEAK_TLS: &str = "HTTP/1.1 426 Upgrade Required\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n\
    from another machine this is asked over TLS (https), by whom its authority is known to\n";

/// How long an answer that is under way may still take where nobody has shown a key in time.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What callers of other machines have to speak.
#[derive(Clone, Debug)]
pub enum Wire {
    /// HTTP as it is.
    Plain,
    /// TLS; on the server's own machine, where nothing crosses a wire, HTTP as it is will do.
    Sealed(EngineServer),
    /// What they like: some are programs of the user's.
    Either(EngineServer),
}

/// Serves these routes behind a door, on a non-blocking listener, until the runtime ends.
///
/// # Errors
/// The listener cannot be used.
pub async fn serve(
    listener: std::net::TcpListener,
    wire: Wire,
    door: Door,
    routes: Router,
) -> io::Result<()> {
    let routes = routes.layer(from_fn_with_state(door, Door::pass));
    let listener = TcpListener::from_std(listener)?;
    accept(listener, wire, routes, std::future::pending()).await;
    Ok(())
}

/// Serves these routes until the end, and then whoever is answered at that moment; dropped, it ends at once. Which
/// callers have a key is for the routes to say, with [`Caller::proven_by`]: all others are strangers.
pub async fn serve_until(
    listener: TcpListener,
    wire: Wire,
    routes: Router,
    end: impl Future<Output = ()>,
) {
    accept(listener, wire, routes, end).await;
}

async fn accept(listener: TcpListener, wire: Wire, routes: Router, end: impl Future<Output = ()>) {
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
        let (wire, routes, ended) = (wire.clone(), routes.clone(), ended.clone());
        conversations.spawn(async move {
            match opened(stream, &wire, from.ip(), &caller).await {
                Some(Opened::Plain(stream)) => converse(stream, caller, routes, ended).await,
                Some(Opened::Sealed(stream)) => converse(*stream, caller, routes, ended).await,
                None => {}
            }
        });
    }
    drop((listener, going_on));
    while conversations.join_next().await.is_some() {}
}

/// A connection on which HTTP is spoken.
enum Opened {
    Plain(TcpStream),
    Sealed(Box<TlsStream<TcpStream>>),
}

/// None: there is nothing to be said on it, or nobody spoke in time.
async fn opened(stream: TcpStream, wire: &Wire, from: IpAddr, caller: &Caller) -> Option<Opened> {
    let opening = async {
        // Tokens go out one by one; each is to leave at once.
        stream.set_nodelay(true)?;
        let (server, asked) = match wire {
            Wire::Plain => return Ok(Opened::Plain(stream)),
            Wire::Sealed(server) => (server, !is_here(stream.local_addr()?.ip(), from)),
            Wire::Either(server) => (server, false),
        };
        let mut first = [0];
        stream.peek(&mut first).await?;
        match first[0] == FIRST_BYTE {
            true => Ok(Opened::Sealed(Box::new(server.answer(stream).await?))),
            false if asked => Err(refused(stream).await),
            false => Ok(Opened::Plain(stream)),
        }
    };
    let opened: io::Result<Opened> = tokio::select! {
        opened = opening => opened,
        _ = caller.without_key() => return None,
    };
    opened
        .inspect_err(|error| tracing::debug!(%from, %error, "a connection was not opened"))
        .ok()
}

/// Whether a caller is on this machine: what comes from its own address has crossed no wire.
fn is_here(own: IpAddr, from: IpAddr) -> bool {
    let (own, from) = (own.to_canonical(), from.to_canonical());
    from.is_loopback() || own == from
}

/// Says to whoever speaks in clear what to speak.
async fn refused(mut stream: TcpStream) -> io::Error {
    // What was asked is read first, or its sender would not hear this.
    let mut asked = [0; 4096];
    let _ = stream.read(&mut asked).await;
    // Whoever left meanwhile needs no reason.
    let _ = stream.write_all(SPEAK_TLS.as_bytes()).await;
    let _ = stream.shutdown().await;
    io::Error::new(io::ErrorKind::PermissionDenied, "it does not speak TLS")
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin,
    caller: Arc<Caller>,
    routes: Router,
    mut ended: watch::Receiver<()>,
) {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_comes_from_this_machine_has_crossed_no_wire() {
        let of = |own: &str, from: &str| is_here(own.parse().unwrap(), from.parse().unwrap());
        assert!(of("127.0.0.1", "127.0.0.2") && of("::1", "::1"));
        assert!(of("10.0.0.1", "10.0.0.1") && of("10.0.0.1", "::ffff:10.0.0.1"));
        assert!(!of("10.0.0.1", "10.0.0.2") && !of("10.0.0.1", "fe80::1"));
    }
}
