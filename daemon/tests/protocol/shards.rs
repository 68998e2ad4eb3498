//! Parts of snapshots between a node and the leader.
use crate::leader::{Leader, shown};
use robust_ckpt::slot::{Slot, SnapshotMemory};
use robust_proto::v1;
use robust_proto::v1::node_host_client::NodeHostClient;
use robust_shared::ids::{Generation, Step};
use robustd::nodes::{RankThere, ShardDigests};
use tonic::Code;

/// A part that is a whole shard of five bytes.
fn shard(incarnation: u64, step: u64, bytes: u64) -> v1::ShardPart {
    let header = v1::ShardHeader {
        incarnation,
        rank: 1,
        step,
        bytes,
    };
    v1::ShardPart {
        header: Some(header),
        data: b"hello".to_vec(),
        xxh3: Some(xxhash_rust::xxh3::xxh3_64(b"hello")),
    }
}

/// A node that would fill the leader's memory, or pass off its own bytes as a rank's that runs elsewhere.
#[tokio::test]
async fn a_node_sends_what_is_waited_for_from_it_and_nothing_else_is_kept() {
    let leader = Leader::start().await;
    let (mut b, mut c) = (leader.join("b").await, leader.join("c").await);
    let (of_b, of_c) = (b.welcomed().await, c.welcomed().await);
    let send = async |part: v1::ShardPart, key: &str| {
        let parts = tokio_stream::iter(vec![part]);
        let mut client = NodeHostClient::new(b.channel.clone());
        let kept = client.keep_shard(shown(parts, Some(key))).await;
        kept.map_or_else(|status| status.code(), |_| Code::Ok)
    };
    let memory = leader.temp.path().join("shm");
    let lies_there = || std::fs::read_dir(&memory).unwrap().count();
    // Nobody trains, and nothing was asked for.
    assert_eq!(send(shard(7, 3, 5), &of_b).await, Code::FailedPrecondition);
    assert_eq!(send(shard(0, 3, 5), &of_b).await, Code::FailedPrecondition);
    let there = RankThere {
        incarnation: 7,
        rank: 1,
        node: "b".to_owned(),
        bytes: None,
    };
    leader.shards.expect_of_gang(3..=3, vec![there]);
    assert_eq!(send(shard(7, 3, 5), &of_c).await, Code::FailedPrecondition);
    assert_eq!(send(shard(7, 9, 5), &of_b).await, Code::FailedPrecondition);
    assert_eq!(send(shard(8, 3, 5), &of_b).await, Code::FailedPrecondition);
    let vast = shard(7, 3, 1 << 50);
    assert_eq!(send(vast, &of_b).await, Code::ResourceExhausted);
    assert_eq!(lies_there(), 0);
    assert_eq!(send(shard(7, 3, 5), &of_b).await, Code::Ok);
    let asked = leader.shards.expect((3, 1), "c", 5);
    assert_eq!(send(shard(0, 3, 5), &of_b).await, Code::FailedPrecondition);
    assert_eq!(send(shard(0, 3, 5), &of_c).await, Code::Ok);
    drop(asked);
    assert_eq!(send(shard(0, 3, 5), &of_c).await, Code::FailedPrecondition);
    assert_eq!(lies_there(), 2);
}

/// What a copy is to be is what was sent to be copied, and not what its holder says of it.
#[tokio::test]
async fn the_digest_of_what_a_node_reads_is_remembered() {
    let leader = Leader::start().await;
    let mut peer = leader.join("b").await;
    let key = peer.welcomed().await;
    let path = leader.temp.path().join("shm/trainer-0.slot0");
    let image = vec![3_u8; 5000];
    let mut slot = Slot::open(&path, image.len() as u64).unwrap();
    let part: &dyn SnapshotMemory = &image.as_slice();
    slot.write((Step(4), Generation(2)), 4, &[part]).unwrap();
    let mut shard = v1::SnapshotReply {
        step: 4,
        generation: 2,
        path: path.display().to_string(),
        bytes: image.len() as u64,
        ..Default::default()
    };
    assert_eq!(leader.shards.digest_read(&shard), None);
    let asked = v1::ReadShardRequest {
        path: shard.path.clone(),
        step: 4,
        generation: 2,
        bytes: shard.bytes,
    };
    let mut client = NodeHostClient::new(peer.channel.clone());
    let parts = client.read_shard(shown(asked, Some(&key))).await.unwrap();
    let mut parts = parts.into_inner();
    while parts.message().await.unwrap().is_some() {}
    let digests = ShardDigests {
        xxh3: xxhash_rust::xxh3::xxh3_64(&image),
        blake3: *blake3::hash(&image).as_bytes(),
    };
    assert_eq!(leader.shards.digest_read(&shard), Some(digests));
    shard.step = 5;
    assert_eq!(leader.shards.digest_read(&shard), None);
}
