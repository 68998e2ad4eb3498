//! How a node's stream begins, and what it may do for as long as it lives.
use crate::leader::{Leader, beat, read, shown, standing};
use robust_proto::v1;
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_host_client::NodeHostClient;
use robustd::driver::Event;
use robustd::nodes::NodeLinkEvent;
use tonic::Code;

#[tokio::test]
async fn a_stream_that_does_not_begin_as_agreed_is_refused_with_its_reason() {
    let leader = Leader::start().await;
    for (messages, what) in [
        (vec![beat()], "begins with what it has"),
        (vec![standing("")], "identity"),
        (vec![standing(&"x".repeat(99))], "identity"),
        (vec![standing("id"), standing("id")], "has said what it has"),
    ] {
        let status = leader.refusal(messages).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().contains(what), "{what}: {status}");
    }
}

#[tokio::test]
async fn a_node_that_proves_itself_is_welcome_for_as_long_as_its_stream_lives() {
    let mut leader = Leader::start().await;
    let mut peer = leader.join("b").await;
    peer.say(standing("id"));
    let Some(Down::Welcome(welcome)) = peer.hear().await.unwrap() else {
        panic!("no welcome");
    };
    let key = welcome.session;
    let channel = peer.channel.clone();
    let names: Vec<_> = welcome.files.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(
        names,
        ["config.json", "model.safetensors", "tokenizer.json"]
    );
    let bytes = read(&channel, Some(&key)).await.unwrap();
    assert_eq!(bytes, b"content of tokenizer.json");
    peer.say(beat());
    let said = leader.next().await;
    assert!(matches!(said, Event::Node(NodeLinkEvent::Said { .. })));
    let mut client = NodeHostClient::new(channel.clone());
    let outside = v1::ReadShardRequest {
        path: "/etc/passwd".to_owned(),
        ..Default::default()
    };
    let outside = client.read_shard(shown(outside, Some(&key))).await;
    assert_eq!(outside.unwrap_err().code(), Code::InvalidArgument);
    let nothing = tokio_stream::iter(Vec::<v1::ShardPart>::new());
    let refusal = client
        .keep_shard(shown(nothing, Some(&key)))
        .await
        .unwrap_err();
    assert!(
        refusal.message().contains("begins with its header"),
        "{refusal}"
    );
    drop(peer);
    let gone = leader.next().await;
    assert!(matches!(gone, Event::Node(NodeLinkEvent::Gone { .. })));
    let refusal = read(&channel, Some(&key)).await.unwrap_err();
    assert_eq!(
        refusal.code(),
        Code::Unauthenticated,
        "its session is closed"
    );
}

#[tokio::test]
async fn the_driver_may_refuse_a_node() {
    let leader = Leader::start().await;
    let mut unwanted = leader.join("unwanted").await;
    unwanted.say(standing("id"));
    let status = unwanted.hear().await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("--name"), "{status}");
    assert!(!leader.sessions.has("unwanted"));
}
