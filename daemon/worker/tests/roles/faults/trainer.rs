//! Faults of a rank: its call fails, its loss is no number, its weights are not what it published.

use robust_proto::v1::call::Body;
use robust_proto::v1::call_reply::Result as Answer;
use robust_proto::v1::{Publish, Snapshot};
use robust_transport::{Buffer, Cancel, Config, Part, RegionKey, Transport};
use xxhash_rust::xxh3::xxh3_64;

use super::super::fixture::token;
use super::super::trainer::{Gang, gang, worked};
use host_fake::FakeHost;
use host_fake::faults::{arm, fault};

fn arm_all(gang: &Gang<'_>, id: u64, kind: &str, at: &str) {
    for (incarnation, ..) in &gang.ranks {
        arm(gang.host, *incarnation, &fault(id, kind, at));
    }
}

#[test]
fn an_exception_fails_the_call_of_its_phase_once_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let mut gang = gang(folder.path(), &host, 1);
    worked(&gang.restore(0, Vec::new()));
    arm_all(&gang, 1, "exception", "snapshot");
    worked(&gang.train(1));
    let snapshot = |_| Body::Snapshot(Snapshot { step: 1 });
    for reply in gang.call("snapshot/1", snapshot) {
        assert_eq!(reply.error, "exception on request in snapshot");
        assert!(!reply.numeric);
    }
    worked(&gang.call("snapshot/1", snapshot));
    gang.end();
}

#[test]
fn a_loss_that_is_no_number_is_said_to_be_none_and_the_step_can_be_trained_again() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let mut gang = gang(folder.path(), &host, 1);
    worked(&gang.restore(0, Vec::new()));
    arm_all(&gang, 1, "nan", "");
    for reply in gang.train(1) {
        assert!(reply.numeric, "{}", reply.error);
        assert!(reply.error.contains("NaN"), "{}", reply.error);
    }
    worked(&gang.train(1));
    gang.end();
}

#[test]
fn weights_that_change_after_they_were_published_differ_in_every_chunk() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let mut gang = gang(folder.path(), &host, 1);
    worked(&gang.restore(0, Vec::new()));
    let (first, addr) = (gang.ranks[0].0, gang.ranks[0].1.transport_addr.clone());
    arm(&host, first, &fault(1, "corrupt-weights", "publish"));
    let mut served = |version| {
        let publish = |_| Body::Publish(Publish { version });
        let reply = gang.call(&format!("publish/{version}"), publish).remove(0);
        match reply.result {
            Some(Answer::Publish(served)) => served,
            _ => panic!("{}", reply.error),
        }
    };
    let corrupt = served(0);
    let region = corrupt.region.unwrap();
    let manifest = corrupt.manifest.unwrap();
    let puller = Transport::start(Config::new(token())).unwrap();
    let into = Buffer::new(region.bytes as usize).unwrap();
    let key = RegionKey::from_bytes(&region.key).unwrap();
    let all = [Part {
        src: 0,
        dst: 0,
        len: region.bytes,
    }];
    let fetched = puller.fetch(
        addr.parse().unwrap(),
        &key,
        &all,
        &into,
        &Cancel::new(),
        |_| (),
    );
    fetched.unwrap();
    let differs = |bytes: &[u8]| {
        let chunks = bytes.chunks(manifest.chunk_bytes as usize);
        let digests = chunks.map(xxh3_64).zip(&manifest.chunk_xxh3);
        digests
            .into_iter()
            .all(|(found, published)| found != *published)
    };
    assert!(into.with_bytes(differs).unwrap());
    gang.end();
}
