//! A server behind its door, and strangers who hold connections open.
#![allow(clippy::unwrap_used)]

use std::net::{SocketAddr, TcpListener};

use axum::Router;
use axum::routing::get;
use robust_http::{Door, MOST_UNPROVEN, Wire, serve};
use robust_identity::{Authority, EngineClient, EngineKey, EngineKeys, EngineServer, Member, Term};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

fn key() -> EngineKey {
    EngineKeys::of(b"job").of_engine(1)
}

fn authority() -> Authority {
    Authority::of(b"secret", "job").unwrap()
}

fn sealed() -> Wire {
    {
        let pem = authority().issue("role/1", Term::unbounded()).unwrap();
        let member = Member::from_pem(&pem).unwrap();
        Wire::Sealed(EngineServer::of(&member).unwrap())
    }
}

fn start() -> SocketAddr {
    start_on(Wire::Plain)
}

fn start_on(wire: Wire) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let addr = listener.local_addr().unwrap();
    let routes = Router::new().route("/model_info", get(async || "a model"));
    tokio::spawn(serve(listener, wire, Door::new([key()], "its key"), routes));
    addr
}

async fn ask(addr: SocketAddr, key: &str) -> String {
    ask_on(TcpStream::connect(addr).await.unwrap(), addr, key).await
}

async fn ask_on(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    addr: SocketAddr,
    key: &str,
) -> String {
    let request = format!(
        "GET /model_info HTTP/1.1\r\nHost: {addr}\r\nAuthorization: {key}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    reply
}

/// Until the server closes the connection.
async fn is_closed(stream: &mut TcpStream) {
    // What it says before, and a reset, end in the same.
    while stream.read(&mut [0; 512]).await.is_ok_and(|read| read > 0) {}
}

#[tokio::test]
async fn strangers_who_hold_connections_keep_nobody_out_who_has_the_key() {
    let addr = start();
    let mut strangers = Vec::new();
    for _ in 0..2 * MOST_UNPROVEN {
        let mut stranger = TcpStream::connect(addr).await.unwrap();
        stranger.write_all(b"GET /model_info").await.unwrap();
        strangers.push(stranger);
    }
    let reply = ask(addr, &key().bearer()).await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let reply = ask(addr, "Bearer guessed").await;
    assert!(reply.starts_with("HTTP/1.1 401"), "{reply}");
    assert!(reply.contains("its key"), "{reply}");
    is_closed(&mut strangers[0]).await;
}

#[tokio::test]
async fn an_engine_is_asked_over_tls_and_on_its_own_machine_in_clear_too() {
    let addr = start_on(sealed());
    let client = EngineClient::of(authority().certificate()).unwrap();
    let stream = TcpStream::connect(addr).await.unwrap();
    let stream = client.call(stream).await.unwrap();
    let reply = ask_on(stream, addr, &key().bearer()).await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    let stream = TcpStream::connect(addr).await.unwrap();
    let stream = client.call(stream).await.unwrap();
    let reply = ask_on(stream, addr, "Bearer guessed").await;
    assert!(reply.starts_with("HTTP/1.1 401"), "{reply}");
    let reply = ask(addr, &key().bearer()).await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
}

#[tokio::test(start_paused = true)]
async fn who_says_half_a_hello_of_tls_or_nothing_within_it_is_not_waited_for() {
    let addr = start_on(sealed());
    let begun = tokio::time::Instant::now();
    for said in [&b""[..], &[22], &[22, 3, 1, 2, 0, 1]] {
        let mut slow = TcpStream::connect(addr).await.unwrap();
        slow.write_all(said).await.unwrap();
        is_closed(&mut slow).await;
    }
    let client = EngineClient::of(authority().certificate()).unwrap();
    let stream = TcpStream::connect(addr).await.unwrap();
    let mut silent = client.call(stream).await.unwrap();
    while silent.read(&mut [0; 512]).await.is_ok_and(|read| read > 0) {}
    assert!(begun.elapsed() <= 5 * robust_http::PATIENCE);
}

#[tokio::test(start_paused = true)]
async fn who_says_half_a_request_or_shows_no_key_is_not_waited_for() {
    let addr = start();
    let begun = tokio::time::Instant::now();
    for said in [
        "",
        "GET /model",
        "GET /model_info HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        let mut slow = TcpStream::connect(addr).await.unwrap();
        slow.write_all(said.as_bytes()).await.unwrap();
        is_closed(&mut slow).await;
    }
    assert!(begun.elapsed() <= 4 * robust_http::PATIENCE);
}

#[tokio::test(start_paused = true)]
async fn who_has_the_key_and_says_nothing_more_or_half_a_head_is_not_waited_for_without_end() {
    let addr = start();
    let asked = format!(
        "GET /model_info HTTP/1.1\r\nHost: {addr}\r\nAuthorization: {}\r\n\r\n",
        key().bearer()
    );
    for more in ["", "GET /model_info HT"] {
        let begun = tokio::time::Instant::now();
        let mut idle = TcpStream::connect(addr).await.unwrap();
        idle.write_all(asked.as_bytes()).await.unwrap();
        let mut said = [0; 12];
        idle.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"HTTP/1.1 200");
        idle.write_all(more.as_bytes()).await.unwrap();
        is_closed(&mut idle).await;
        let lived = begun.elapsed();
        assert!(lived <= 2 * robust_http::IDLE, "{more:?}: {lived:?}");
        // Who has a key has more time than a stranger.
        assert!(lived > robust_http::PATIENCE, "{more:?}: {lived:?}");
    }
}
