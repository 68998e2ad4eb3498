//! What a stranger and a node may cost a leader that they keep waiting.
use super::flood;
use super::leader::{Leader, Peer, TOKEN, connect};
use robust_identity::NodeKey;
use robust_proto::v1;
use robust_proto::v1::node_host_client::NodeHostClient;
use robustd::driver::Event;
use robustd::grpc::STREAMS_OF_A_NODE;
use robustd::nodes::{HANDSHAKE, JoinToken, KEEPALIVE, KEEPALIVE_TIMEOUT, NodeLinkEvent, PATIENCE};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::{Code, Request};

/// Time that a busy machine may add.
const SLACK: Duration = Duration::from_secs(15);

#[tokio::test]
async fn who_says_half_a_hello_of_tls_or_nothing_is_not_waited_for() {
    let leader = Leader::start().await;
    let begun = Instant::now();
    let half: [&[u8]; 3] = [b"", &[22], &[22, 3, 1, 2, 0, 1]];
    let strangers = half.map(|said| {
        tokio::spawn(async move {
            let mut stranger = TcpStream::connect(leader.addr).await.unwrap();
            stranger.write_all(said).await.unwrap();
            // What is said to it, and a reset, end in the same.
            while stranger.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {}
        })
    });
    for stranger in strangers {
        let closed = timeout(PATIENCE + SLACK, stranger).await;
        closed.expect("it is closed").unwrap();
    }
    assert!(begun.elapsed() >= PATIENCE, "a slow node has its time");
}

#[tokio::test]
async fn a_node_that_never_says_what_it_has_is_refused_in_time() {
    let leader = Leader::start().await;
    let mut silent = leader.join("b").await;
    let refused = timeout(HANDSHAKE + SLACK, silent.down.message()).await;
    let refused = refused.expect("it is refused").unwrap_err();
    assert_eq!(refused.code(), Code::DeadlineExceeded, "{refused}");
    assert!(refused.message().contains("too long"), "{refused}");
}

/// The way to a leader, on which nothing moves any more from the moment that is told.
async fn freezes(leader: std::net::SocketAddr) -> (std::net::SocketAddr, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (freeze, mut frozen) = watch::channel(false);
    tokio::spawn(async move {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = TcpStream::connect(leader).await.unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
            _ = frozen.wait_for(|frozen| *frozen) => {}
        }
        // Neither end hears of it.
        std::future::pending::<()>().await;
    });
    (addr, freeze)
}

#[tokio::test]
async fn a_node_whose_connection_does_not_answer_is_gone_in_time() {
    let mut leader = Leader::start().await;
    let key = NodeKey::new().unwrap();
    let caller = super::leader::enroll(leader.addr, TOKEN, "b", &key).await;
    let (way, freeze) = freezes(leader.addr).await;
    let mut node = Peer::join(connect(way, caller.unwrap()).await.unwrap())
        .await
        .unwrap();
    node.hear().await.unwrap();
    node.welcomed().await;
    freeze.send_replace(true);
    let within = KEEPALIVE + KEEPALIVE_TIMEOUT + SLACK;
    let gone = timeout(within, leader.heard.recv()).await;
    let gone = gone.expect("the leader gives it up").unwrap();
    assert!(matches!(gone, Event::Node(NodeLinkEvent::Gone { .. })));
}

#[tokio::test]
async fn requests_at_a_time_on_one_connection_have_a_bound() {
    let leader = Leader::start().await;
    let caller = JoinToken::of(TOKEN).holders().unwrap().caller().unwrap();
    let stream = TcpStream::connect(leader.addr).await.unwrap();
    let stream = caller.call(stream).await.unwrap();
    let begun = STREAMS_OF_A_NODE as usize + 3;
    flood::is_refused(stream, (begun, "/robust.v1.NodeHost/Enroll"), 3).await;
}

#[tokio::test]
async fn headers_of_a_request_have_a_bound() {
    let leader = Leader::start().await;
    let mut client = NodeHostClient::new(leader.node("b").await);
    let clock = |bytes: usize| {
        let mut request = Request::new(v1::ClockRequest {});
        let value = "x".repeat(bytes).parse().unwrap();
        request.metadata_mut().insert("long", value);
        request
    };
    client.clock(clock(4 << 10)).await.unwrap();
    let refused = client.clock(clock(9 << 10)).await.unwrap_err();
    assert!(refused.message().contains("431"), "{refused}");
}
