//! Who is no node of the job, or was one: what such a peer hears, and whom it keeps out.
use crate::leader::{Leader, Peer, TOKEN, beat, call, connect, enroll, read};
use robust_identity::NodeKey;
use robust_proto::v1;
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_host_client::NodeHostClient;
use robust_proto::v1::role_host_client::RoleHostClient;
use robustd::driver::Event;
use robustd::nodes::{IN_ALL, NodeLinkEvent, OF_ONE_ADDRESS, unix_ms};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tonic::Code;

#[tokio::test]
async fn who_has_a_join_token_alone_joins_no_job_and_reads_nothing_of_it() {
    let leader = Leader::start().await;
    let holder = call(leader.addr, TOKEN).await.unwrap();
    let refused = Peer::join(holder.clone()).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().contains("enroll first"), "{refused}");
    for key in [None, Some("0".repeat(64))] {
        let refused = read(&holder, key.as_deref()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated);
    }
    let mut roles = RoleHostClient::new(holder);
    let refusal = roles.route(v1::RouteRequest::default()).await.unwrap_err();
    assert_eq!(refusal.code(), Code::Unauthenticated);
}

/// A node that was broken into knows its own key and its own session's.
#[tokio::test]
async fn a_node_makes_no_node_and_speaks_for_no_other() {
    let mut leader = Leader::start().await;
    let (mut b, mut c) = (leader.join("b").await, leader.join("c").await);
    let (of_b, of_c) = (b.welcomed().await, c.welcomed().await);
    assert_ne!(of_b, of_c);
    let mut client = NodeHostClient::new(b.channel.clone());
    let request = v1::EnrollRequest {
        name: "d".to_owned(),
        public_key: NodeKey::new().unwrap().public().to_vec(),
    };
    let refused = client.enroll(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    // It kept the token for all, and would be the other one, which is joined.
    let refused = enroll(leader.addr, TOKEN, "c", &NodeKey::new().unwrap()).await;
    let refused = refused.err().unwrap();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    c.say(beat());
    let said = leader.next().await;
    assert!(matches!(said, Event::Node(NodeLinkEvent::Said { .. })));
}

#[tokio::test]
async fn a_token_of_one_machine_makes_one_node_and_a_name_that_makes_no_sense_none() {
    let leader = Leader::start().await;
    let created = leader.members.create(None, 60, unix_ms()).unwrap();
    let (key, other) = (NodeKey::new().unwrap(), NodeKey::new().unwrap());
    let token = created.token.reveal();
    for name in ["", &"x".repeat(65)] {
        let refused = enroll(leader.addr, token, name, &key).await.err().unwrap();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
    let caller = enroll(leader.addr, token, "b", &key).await.unwrap();
    let refused = enroll(leader.addr, token, "c", &other).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    let channel = connect(leader.addr, caller).await.unwrap();
    let mut peer = Peer::join(channel).await.unwrap();
    assert!(matches!(peer.hear().await, Ok(Some(Down::Greeting(_)))));
    peer.welcomed().await;
}

#[tokio::test]
async fn a_certificate_that_is_taken_back_ends_the_stream_and_opens_none() {
    let mut leader = Leader::start().await;
    let mut peer = leader.join("b").await;
    let key = peer.welcomed().await;
    read(&peer.channel, Some(&key)).await.unwrap();
    leader.members.revoke_node("b", unix_ms()).unwrap();
    leader.sessions.close("b");
    let status = peer.hear().await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    let refused = read(&peer.channel, Some(&key)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let gone = leader.next().await;
    assert!(matches!(gone, Event::Node(NodeLinkEvent::Gone { .. })));
}

#[tokio::test]
async fn who_is_enrolled_under_a_name_takes_the_place_of_whoever_had_it() {
    let leader = Leader::start().await;
    let key = NodeKey::new().unwrap();
    let before = enroll(leader.addr, TOKEN, "b", &key).await.unwrap();
    let mut peer = Peer::join(connect(leader.addr, before.clone()).await.unwrap())
        .await
        .unwrap();
    assert!(matches!(peer.hear().await, Ok(Some(Down::Greeting(_)))));
    peer.welcomed().await;
    let wanted = Some("b".to_owned());
    let created = leader.members.create(wanted, 60, unix_ms()).unwrap();
    let token = created.token.reveal();
    enroll(leader.addr, token, "b", &NodeKey::new().unwrap())
        .await
        .unwrap();
    let status = peer.hear().await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    let refused = Peer::join(connect(leader.addr, before).await.unwrap()).await;
    let refused = refused.err().unwrap();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    assert!(refused.message().contains("another machine"), "{refused}");
}

#[tokio::test]
async fn who_has_the_token_may_ask_for_the_clock_before_it_joins_and_for_nothing_else() {
    let leader = Leader::start().await;
    let mut client = NodeHostClient::new(call(leader.addr, TOKEN).await.unwrap());
    let unix_us = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        u64::try_from(now.unwrap().as_micros()).unwrap()
    };
    let before = unix_us();
    let said = client
        .clock(v1::ClockRequest {})
        .await
        .unwrap()
        .into_inner();
    assert!((before..=unix_us()).contains(&said.unix_us), "{said:?}");
    assert_eq!(said.seen_as, "127.0.0.1");
    assert_eq!(said.version, env!("CARGO_PKG_VERSION"));
    let name = "data.prompts".to_owned();
    let refused = client.read_file(v1::ReadFileRequest { name }).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn who_has_another_token_or_none_hears_nothing_of_the_job() {
    let leader = Leader::start().await;
    call(leader.addr, "another token, as long as it is")
        .await
        .unwrap_err();
    // HTTP/2 in clear, and a call for the clock's path in HTTP/1.1.
    for plain in [
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "POST /robust.v1.NodeHost/Clock HTTP/1.1\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(leader.addr).await.unwrap();
        stream.write_all(plain.as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard).await;
        // An alert of TLS (type 21): its header, a level and a description.
        assert!(heard.len() <= 7 && heard.first().is_none_or(|kind| *kind == 21));
    }
    let mut client = NodeHostClient::new(call(leader.addr, TOKEN).await.unwrap());
    client.clock(v1::ClockRequest {}).await.unwrap();
}

#[tokio::test]
async fn strangers_who_hold_connections_open_keep_no_node_out() {
    let leader = Leader::start().await;
    let from = |last: u8| async move {
        let socket = TcpSocket::new_v4().unwrap();
        let local = SocketAddr::from(([127, 0, 0, last], 0));
        socket.bind(local).unwrap();
        socket.connect(leader.addr).await.unwrap()
    };
    let mut held = Vec::new();
    for _ in 0..4 * OF_ONE_ADDRESS {
        held.push(from(2).await);
    }
    // Those for whom there was no place are closed, the others are waited for.
    let mut closed = 0;
    for stream in &mut held {
        let mut byte = [0];
        let read = timeout(Duration::from_millis(50), stream.read(&mut byte)).await;
        closed += usize::from(matches!(read, Ok(Ok(0) | Err(_))));
    }
    assert_eq!(closed, 3 * OF_ONE_ADDRESS);
    assert!(held.len() < IN_ALL);
    // From another address at once, though none of theirs has ended yet.
    call(leader.addr, TOKEN).await.unwrap();
}
