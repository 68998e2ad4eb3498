//! Versions travel through chains of real processes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use support::{MIB, Puller, Source, Version};

#[test]
fn two_trainer_ranks_feed_a_chain_of_three_at_once() {
    let bytes = 32 * MIB + 20_000;
    let version = Version::new(1, bytes, MIB);
    let (first, second) = (Source::start(1, version), Source::start(2, version));
    let half = bytes / 2 / 4 * 4 + 12_345; // in the middle of a chunk
    let ranks = [first.part(0, half), second.part(half, bytes)];
    let mut pullers: Vec<_> = (3..6).map(|id| Puller::start(id, bytes)).collect();
    let mut sources = ranks.to_vec();
    for puller in &mut pullers {
        puller.order(&first.manifest, &sources);
        sources = vec![puller.line()];
    }
    for puller in &mut pullers {
        assert_eq!(puller.node.wait_done(1), ("ok".into(), None));
        assert_eq!(puller.node.checked(), Some(1));
        assert_eq!(puller.node.fetched(), bytes as u64);
    }
}

#[test]
fn a_chain_waits_for_a_relay_that_has_no_source_yet() {
    let bytes = 8 * MIB;
    let source = Source::start(1, Version::new(1, bytes, MIB));
    let (mut relay, mut puller) = (Puller::start(2, bytes), Puller::start(3, bytes));
    relay.order(&source.manifest, &[source.part(0, 3 * MIB)]);
    let (result, _) = relay.node.wait_done(1);
    assert_eq!(result, "source");
    puller.order(&source.manifest, &[relay.line()]);
    puller.wait_bytes(1, 3 * MIB as u64);
    // Longer than a silent source may take: the relay says that it is alive.
    std::thread::sleep(2 * support::STALL);
    let kept = relay.line();
    relay.order(&source.manifest, &[source.line()]);
    assert_eq!(relay.line(), kept, "the region is the same");
    for puller in [&mut relay, &mut puller] {
        assert_eq!(puller.node.wait_done(1), ("ok".into(), None));
        assert_eq!(puller.node.checked(), Some(1));
        assert_eq!(puller.node.fetched(), bytes as u64);
    }
}

#[test]
fn a_late_joiner_pulls_from_any_relay_when_the_trainer_is_gone() {
    let bytes = 8 * MIB;
    let source = Source::start(1, Version::new(4, bytes, MIB));
    let mut relay = Puller::start(2, bytes);
    relay.order(&source.manifest, &[source.line()]);
    assert_eq!(relay.node.wait_done(4).0, "ok");
    let manifest = source.manifest.clone();
    drop(source);
    let mut late = Puller::start(3, bytes);
    late.order(&manifest, &[relay.line()]);
    assert_eq!(late.node.wait_done(4).0, "ok");
    assert_eq!(late.node.checked(), Some(4));
}

#[test]
fn a_newer_version_supersedes_a_pull_and_keeps_what_did_not_change() {
    let (bytes, common) = (16 * MIB, 5);
    let old = Source::start(1, Version::new(1, bytes, MIB));
    let mut mid = Version::new(2, bytes, MIB);
    mid.common = common;
    let mut new = mid;
    (new.version, new.seed) = (3, 3);
    let (mid, new) = (Source::start(2, mid), Source::start(3, new));
    let (mut relay, mut puller) = (Puller::start(4, bytes), Puller::start(5, bytes));
    relay.order(&old.manifest, &[old.line()]);
    assert_eq!(relay.node.wait_done(1).0, "ok");
    // All of the common chunks and some others of version 2, then it is superseded.
    relay.order(&mid.manifest, &[mid.part(0, 8 * MIB)]);
    assert_eq!(relay.node.wait_done(2).0, "source");
    puller.order(&mid.manifest, &[relay.line()]);
    puller.wait_bytes(2, 8 * MIB as u64);
    let before = relay.node.fetched();
    relay.order(&new.manifest, &[new.line()]);
    assert_eq!(relay.node.wait_done(3).0, "ok");
    assert_eq!(relay.node.checked(), Some(3));
    let rest = (bytes - common * MIB) as u64;
    assert_eq!(relay.node.fetched() - before, rest);
    // Its reader of version 2 was refused, and goes on with version 3.
    assert_eq!(puller.node.wait_done(2), ("source".into(), Some(4)));
    puller.order(&new.manifest, &[relay.line()]);
    assert_eq!(puller.node.wait_done(3).0, "ok");
    assert_eq!(puller.node.checked(), Some(3));
    assert_eq!(puller.node.fetched(), 8 * MIB as u64 + rest);
}

#[test]
fn chunks_that_the_served_version_has_already_are_copied_not_fetched() {
    let bytes = 16 * MIB;
    let mut first = Version::new(1, bytes, MIB);
    first.common = 12;
    let mut second = first;
    (second.version, second.seed) = (2, 2);
    let (first, second) = (Source::start(1, first), Source::start(2, second));
    let mut puller = Puller::start(3, bytes);
    for (version, source) in [(1, &first), (2, &second)] {
        puller.order(&source.manifest, &[source.line()]);
        assert_eq!(puller.node.wait_done(version).0, "ok");
        assert_eq!(puller.node.checked(), Some(version));
    }
    assert_eq!(puller.node.fetched(), (bytes + 4 * MIB) as u64);
    // An older one is refused, what is served stays.
    let manifest = &first.manifest;
    let order = serde_json::json!({"order": {"manifest": manifest, "sources": [first.line()]}});
    puller.node.tell(&order);
    assert_eq!(puller.node.wait_done(1).0, "superseded");
    assert_eq!(puller.node.checked(), Some(2));
}

#[test]
fn the_newest_order_counts_and_every_order_gets_its_end() {
    let bytes = 64 * MIB;
    let versions: Vec<_> = (1..4)
        .map(|version| Source::start(version, Version::new(version, bytes, MIB)))
        .collect();
    let mut puller = Puller::start(9, bytes);
    for source in &versions {
        let (manifest, sources) = (&source.manifest, [source.line()]);
        let order = serde_json::json!({"order": {"manifest": manifest, "sources": sources}});
        puller.node.tell(&order);
    }
    for version in 1..4 {
        let (result, _) = puller.node.wait_done(version);
        // The first ones may be through before the next order is read.
        assert!(
            result == "ok" || (version < 3 && result == "superseded"),
            "{result}"
        );
    }
    assert_eq!(puller.node.checked(), Some(3));
}
