#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::grpc::{Revoked, Rights};
use crate::ha::{Candidacy, answers};
use robust_identity::{Holders, Person};
use robust_proto::endpoint::FOLLOWER;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_rustls::client::TlsStream;
use tonic::codegen::BoxFuture;
use tonic::codegen::http::Response;

#[path = "../../tests/protocol/flood.rs"]
mod flood;

#[test]
fn what_is_no_address_is_said_with_an_example() {
    for good in ["127.0.0.1:0", "[::1]:7070", "0.0.0.0:7070", "10.0.0.1:1"] {
        reachable("--listen", good).unwrap();
    }
    for bad in ["localhost:1", "7070", "127.0.0.1", "127.0.0.1:99999", ""] {
        let refused = reachable("--metrics", bad).unwrap_err();
        assert!(matches!(refused, ListenError::NotAnAddress { .. }), "{bad}");
    }
}

#[test]
fn nodes_are_listened_for_where_they_are_told_to_reach_the_roles() {
    let (addr, reached) = for_nodes("127.0.0.1:7071", None).unwrap();
    assert_eq!((addr.port(), reached), (7071, IpAddr::from([127, 0, 0, 1])));
    for_nodes("10.0.0.1:7071", None).unwrap();
    let refusal = for_nodes("0.0.0.0:7071", None).unwrap_err();
    assert!(refusal.to_string().contains("--advertise"));
    let reached = IpAddr::from([10, 0, 0, 1]);
    let (_, at) = for_nodes("0.0.0.0:1", Some(reached)).unwrap();
    assert_eq!(at, reached);
    assert!(for_nodes("nonsense", None).is_err());
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let first = bind_tcp("--listen", "127.0.0.1:0".parse().unwrap())
        .await
        .unwrap();
    let refusal = bind_tcp("--metrics", first.local_addr().unwrap())
        .await
        .unwrap_err();
    assert!(
        refusal.to_string().starts_with("--metrics 127.0.0.1:"),
        "{refusal}"
    );
    assert!(matches!(refusal, ListenError::InUse { .. }));
}

#[tokio::test]
async fn a_socket_is_its_owners_alone_and_a_path_too_long_is_said() {
    use std::os::unix::fs::PermissionsExt;
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("s.sock");
    let _listener = bind_unix(&path).unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let long = temp.path().join("x".repeat(120));
    assert!(matches!(
        bind_unix(&long),
        Err(ListenError::PathTooLong { .. })
    ));
}

const TOKEN: &str = "a viewer's token, of 256 bits";

/// A service that never answers.
#[derive(Clone)]
struct Silent;

impl NamedService for Silent {
    const NAME: &'static str = "robust.v1.Control";
}

impl Service<Request<Body>> for Silent {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        Box::pin(std::future::pending())
    }
}

/// A connection of somebody who proved to have a token, to a service behind `--listen`.
async fn called(quiet: Duration) -> TlsStream<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let viewer = (Holders::of(TOKEN).unwrap(), Rights::Viewer);
    let tools = bounded(listener, Door::of(vec![viewer]).unwrap());
    tokio::spawn(serve_tools(tools, Silent, quiet));
    let caller = Holders::of(TOKEN).unwrap().caller().unwrap();
    let stream = TcpStream::connect(at).await.unwrap();
    caller.call(stream).await.unwrap()
}

#[tokio::test]
async fn requests_at_a_time_of_one_tool_have_a_bound() {
    let stream = called(QUIET).await;
    let begun = STREAMS_OF_A_TOOL as usize + 3;
    flood::is_refused(stream, (begun, "/robust.v1.Control/GetStatus"), 3).await;
}

#[tokio::test]
async fn headers_of_a_tools_request_have_a_bound() {
    let stream = called(QUIET).await;
    let (mut requests, connection) = h2::client::handshake(stream).await.unwrap();
    let driving = tokio::spawn(connection);
    let request = Request::post("http://leader/robust.v1.Control/GetStatus")
        .header("long", "x".repeat(9 << 10))
        .body(())
        .unwrap();
    let (answer, _) = requests.send_request(request, false).unwrap();
    let answer = tokio::time::timeout(Duration::from_secs(20), answer).await;
    let answer = answer.expect("it is refused").unwrap();
    assert_eq!(answer.status(), 431);
    driving.abort();
}

#[tokio::test]
async fn a_tools_connection_that_does_not_answer_is_closed() {
    let mut silent = called(Duration::from_millis(200)).await;
    // It says nothing of HTTP/2, and does not answer what it is asked.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    tokio::io::AsyncWriteExt::write_all(&mut silent, preface)
        .await
        .unwrap();
    let closed = async { while silent.read(&mut [0; 512]).await.is_ok_and(|n| n > 0) {} };
    let closed = tokio::time::timeout(Duration::from_secs(20), closed).await;
    closed.expect("it is closed");
}

/// A connection of a tool, as long as it lasts.
struct Tool {
    requests: h2::client::SendRequest<bytes::Bytes>,
    connection: JoinHandle<Result<(), h2::Error>>,
}

impl Tool {
    async fn with(token: &str, at: SocketAddr) -> Self {
        let caller = Holders::of(token).unwrap().caller().unwrap();
        let stream = TcpStream::connect(at).await.unwrap();
        let stream = caller.call(stream).await.unwrap();
        let (requests, connection) = h2::client::handshake(stream).await.unwrap();
        Self {
            requests,
            connection: tokio::spawn(connection),
        }
    }

    /// Whether it is told that this is a controller that follows.
    async fn is_told_of_a_follower(&mut self) -> bool {
        let asked = Request::post("http://leader/robust.v1.Control/GetStatus");
        let asked = asked.body(()).unwrap();
        let (answer, _) = self.requests.send_request(asked, true).unwrap();
        let answer = answer.await.unwrap();
        assert!(answer.headers().contains_key("grpc-status"));
        answer.headers().contains_key(FOLLOWER)
    }
}

#[tokio::test]
async fn who_is_told_that_another_one_leads_is_connected_no_longer_than_that_is_so() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("persons.revoked");
    let (lost, kept) = ("erin", "dave");
    let person = |name| Person::new("operator", name, 4_000_000_000).unwrap();
    std::fs::write(&path, format!("{}\n", person(lost).id())).unwrap();
    crate::state::make_private(&path).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let operators = Holders::with_persons(TOKEN, "operator").unwrap();
    let door = Door::of(vec![(operators, Rights::Operator)]).unwrap();
    let (_stands, seen) = watch::channel(Candidacy::default());
    let answers = answers(seen, Some(Revoked::open(&path).unwrap()));
    let (end, ends) = oneshot::channel::<()>();
    let end_of = async move { drop(ends.await) };
    let serving = tokio::spawn(serve_answers(listener, answers, door, end_of));
    let mut operator = Tool::with(TOKEN, at).await;
    assert!(operator.is_told_of_a_follower().await);
    let mut tool = Tool::with(&person(kept).token(TOKEN), at).await;
    assert!(tool.is_told_of_a_follower().await);
    let mut tool = Tool::with(&person(lost).token(TOKEN), at).await;
    assert!(!tool.is_told_of_a_follower().await, "taken back");
    end.send(()).unwrap();
    let closed = tokio::time::timeout(Duration::from_secs(20), operator.connection);
    drop(closed.await.expect("it is closed"));
    serving.await.unwrap().unwrap();
    TcpListener::bind(at).await.unwrap();
}
