//! Certificates of nodes that are made anew, are over, or were taken back while a connection stayed open.
use crate::leader::{Leader, Peer, connect, enroll};
use robust_identity::{LIFE_OF_NODE, NodeKey, Unsealed, unsealed};
use robust_proto::v1;
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_host_client::NodeHostClient;
use robustd::nodes::{TokenId, unix_ms};
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

/// Asks for a certificate over this connection.
async fn renew(channel: &Channel, name: &str, key: &NodeKey) -> Result<v1::EnrollReply, Status> {
    let request = v1::EnrollRequest {
        name: name.to_owned(),
        public_key: key.public().to_vec(),
    };
    let mut client = NodeHostClient::new(channel.clone());
    Ok(client.enroll(request).await?.into_inner())
}

#[tokio::test]
async fn a_node_gets_another_certificate_by_the_one_it_has_which_counts_until_it_calls_by_the_new()
{
    let leader = Leader::start().await;
    let key = NodeKey::new().unwrap();
    let before = enroll(leader.addr, crate::leader::TOKEN, "b", &key)
        .await
        .unwrap();
    let by_before = connect(leader.addr, before.clone()).await.unwrap();
    let key = NodeKey::new().unwrap();
    // The first answer is lost with the connection.
    renew(&by_before, "b", &key).await.unwrap();
    let made = renew(&by_before, "b", &key).await.unwrap();
    assert!(made.since_ms.abs_diff(unix_ms()) < 60_000, "{made:?}");
    let life_ms = made.until_ms - made.since_ms;
    assert!(
        life_ms.abs_diff(LIFE_OF_NODE.as_millis() as u64) < 2000,
        "{made:?}"
    );
    // It dies before it has stored the answer: what it has lets it in.
    let again = connect(leader.addr, before.clone()).await.unwrap();
    let mut peer = Peer::join(again).await.unwrap();
    assert!(matches!(peer.hear().await, Ok(Some(Down::Greeting(_)))));
    let by_new = key.caller(&made.certificates).unwrap();
    let mut peer = Peer::join(connect(leader.addr, by_new).await.unwrap())
        .await
        .unwrap();
    assert!(matches!(peer.hear().await, Ok(Some(Down::Greeting(_)))));
    for late in [by_before, connect(leader.addr, before).await.unwrap()] {
        let refused = Peer::join(late.clone()).await.err().unwrap();
        assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
        assert!(renew(&late, "b", &NodeKey::new().unwrap()).await.is_err());
    }
}

#[tokio::test]
async fn a_node_gets_no_certificate_for_another() {
    let leader = Leader::start().await;
    let (b, _c) = (leader.node("b").await, leader.node("c").await);
    let refused = renew(&b, "c", &NodeKey::new().unwrap()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
}

#[tokio::test]
async fn a_certificate_that_is_over_opens_nothing_and_the_node_is_told_so() {
    let leader = Leader::start().await;
    let key = NodeKey::new().unwrap();
    let begun_ms = unix_ms() - LIFE_OF_NODE.as_millis() as u64 - 1000;
    let asked = ("b", key.public());
    let made = leader
        .members
        .enroll(&TokenId::Shared, asked, false, begun_ms);
    let caller = key.caller(&made.unwrap().pem).unwrap();
    let stream = TcpStream::connect(leader.addr).await.unwrap();
    let mut sealed = caller.call(stream).await.unwrap();
    // The handshake is over for the caller before the leader has looked at its certificate.
    let why = unsealed(&sealed.fill_buf().await.unwrap_err());
    assert_eq!(why, Some(Unsealed::OursIsOver));
}

#[tokio::test]
async fn a_connection_that_outlives_its_certificate_joins_no_more_and_gets_no_other() {
    let leader = Leader::start().await;
    let open = leader.node("b").await;
    leader.members.revoke_node("b", unix_ms()).unwrap();
    let refused = Peer::join(open.clone()).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    assert!(renew(&open, "b", &NodeKey::new().unwrap()).await.is_err());
    // Another machine is `b` now.
    leader.node("b").await;
    let refused = Peer::join(open.clone()).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    assert!(renew(&open, "b", &NodeKey::new().unwrap()).await.is_err());
}
