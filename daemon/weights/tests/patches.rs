//! Who has one of the versions before gets what changed since, and ends with the same bytes as whoever gets
//! it whole.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use nix::sys::signal::Signal;
use support::{MIB, Puller, Source, Version};

const BYTES: usize = 16 * MIB;
/// Words of a million that a step changes.
const FEW: u32 = 10_000;

/// A trainer's rank that serves version 1, and pullers that have it, each from the one before.
fn settled(pullers: u64) -> (Source, Vec<Puller>) {
    let source = Source::of_short_words(1, Version::new(1, BYTES, MIB));
    let start = |id| Puller::of_short_words(id, BYTES);
    let mut pullers: Vec<Puller> = (2..2 + pullers).map(start).collect();
    follow(&source, &mut pullers);
    assert!(pullers.iter().all(|puller| !puller.has_patches()));
    (source, pullers)
}

/// All pull what the source serves, in a chain; bytes that came over the network to each.
fn follow(source: &Source, pullers: &mut [Puller]) -> Vec<u64> {
    let version = source.manifest["version"].as_u64().unwrap();
    let before: Vec<u64> = pullers.iter_mut().map(|p| p.node.fetched()).collect();
    let mut from = source.line();
    for puller in &mut *pullers {
        puller.order(&source.manifest, &[from]);
        from = puller.line();
    }
    let ended = |(puller, before): (&mut Puller, u64)| {
        assert_eq!(puller.node.wait_done(version), ("ok".into(), None));
        assert_eq!(puller.node.checked(), Some(version));
        puller.node.fetched() - before
    };
    pullers.iter_mut().zip(before).map(ended).collect()
}

#[test]
fn what_changed_goes_down_a_chain_and_makes_the_same_bytes() {
    let (mut source, mut pullers) = settled(3);
    for version in 2..=5 {
        source.step(version, FEW);
        assert!(source.has_patches());
        for fetched in follow(&source, &mut pullers) {
            assert!(
                fetched < BYTES as u64 / 50,
                "{fetched} bytes for one word in a hundred"
            );
        }
        assert!(pullers.iter().all(Puller::has_patches));
    }
}

#[test]
fn who_has_none_of_the_versions_before_gets_it_whole_from_the_same_source() {
    let (mut source, mut pullers) = settled(1);
    source.step(2, FEW);
    follow(&source, &mut pullers);
    source.step(3, FEW);
    let mut late = [Puller::of_short_words(9, BYTES)];
    assert_eq!(follow(&source, &mut late), [BYTES as u64]);
    assert!(!late[0].has_patches());
    assert!(follow(&source, &mut pullers)[0] < BYTES as u64 / 50);
    // From here on both have what the next one is made of.
    source.step(4, FEW);
    for puller in [&mut pullers[..], &mut late] {
        assert!(follow(&source, puller)[0] < BYTES as u64 / 50);
    }
}

#[test]
fn chunks_of_other_bytes_come_whole_and_those_of_which_every_word_moved_do_not() {
    let (mut source, mut pullers) = settled(2);
    source.publish(2);
    let index = 4096;
    for fetched in follow(&source, &mut pullers) {
        let bounds = BYTES as u64..BYTES as u64 + index;
        assert!(bounds.contains(&fetched), "{fetched}");
    }
    // Up or down: a bit for each word.
    source.step(3, 1_000_000);
    for fetched in follow(&source, &mut pullers) {
        assert!(fetched < BYTES as u64 / 8, "{fetched}");
    }
}

#[test]
fn damage_in_what_a_version_is_made_of_is_found_and_its_chunk_comes_whole() {
    let (mut source, mut pullers) = settled(2);
    let few_and_a_chunk = MIB as u64..2 * MIB as u64;
    pullers[0].node.corrupt(3 * MIB + 5, 1);
    source.step(2, FEW);
    let fetched = follow(&source, &mut pullers);
    assert!(few_and_a_chunk.contains(&fetched[0]), "{fetched:?}");
    // Its reader's own bytes are good, and so are the patches.
    assert!(fetched[1] < BYTES as u64 / 50, "{fetched:?}");
    // What the publisher makes patches of: they are wrong for everybody.
    source.node.corrupt(5 * MIB + 5, 1);
    source.step(3, FEW);
    for fetched in follow(&source, &mut pullers) {
        assert!(few_and_a_chunk.contains(&fetched), "{fetched}");
    }
}

#[test]
fn a_version_of_float32_is_offered_whole_and_so_is_any_after_one_that_was_left_out() {
    let mut source = Source::start(1, Version::new(1, BYTES, MIB));
    source.step(2, FEW);
    assert!(!source.has_patches());
    let mut source = Source::of_short_words(2, Version::new(1, BYTES, MIB));
    source.step(3, FEW);
    assert!(!source.has_patches(), "nobody has version 2");
    source.step(4, FEW);
    assert!(source.has_patches());
}

#[test]
fn a_source_that_dies_or_stands_still_among_its_patches_is_left_for_another() {
    for signal in [Signal::SIGKILL, Signal::SIGSTOP] {
        let (mut source, mut pullers) = settled(1);
        let mut other = Source::of_short_words(7, Version::new(1, BYTES, MIB));
        source.step(2, FEW);
        other.step(2, FEW);
        // The order finds it dead or stopped, before the index or after some patches.
        source.node.signal(signal);
        pullers[0].order(&source.manifest, &[source.line()]);
        assert_eq!(pullers[0].node.wait_done(2), ("source".into(), Some(1)));
        let fetched = follow(&other, &mut pullers);
        assert!(fetched[0] < BYTES as u64 / 50, "{fetched:?}");
    }
}

#[test]
fn a_relay_that_waits_for_its_patches_lets_its_readers_wait_and_dies_without_harm() {
    let (mut source, mut pullers) = settled(2);
    source.step(2, FEW);
    // The first one's source is stopped, so the second one waits for patches at the first.
    source.node.signal(Signal::SIGSTOP);
    let [first, second] = &mut pullers[..] else {
        panic!("two were started");
    };
    first.order(&source.manifest, &[source.line()]);
    second.order(&source.manifest, &[first.line()]);
    first.node.signal(Signal::SIGKILL);
    assert_eq!(second.node.wait_done(2), ("source".into(), Some(2)));
    source.node.signal(Signal::SIGCONT);
    let fetched = follow(&source, &mut pullers[1..]);
    assert!(fetched[0] < BYTES as u64 / 50, "{fetched:?}");
}

#[test]
fn a_relay_passes_patches_on_of_chunks_that_it_had_got_whole_before() {
    let (mut source, mut pullers) = settled(2);
    source.step(2, FEW);
    // An order without patches brings a half; the next one has them.
    let mut half = source.part(0, BYTES / 2);
    half["patches"] = serde_json::json!([]);
    pullers[0].order(&source.manifest, &[half]);
    assert_eq!(pullers[0].node.wait_done(2), ("source".into(), None));
    let fetched = follow(&source, &mut pullers);
    assert!(fetched[1] < BYTES as u64 / 50, "{fetched:?}");
}

#[test]
fn who_sent_what_changed_is_told_when_all_is_here() {
    let (mut source, mut pullers) = settled(1);
    source.step(2, FEW);
    let puller = &mut pullers[0];
    puller.order(&source.manifest, &[source.line()]);
    let whole = |p: &serde_json::Value| p["version"] == 2 && p["bytes"] == BYTES;
    let progress = puller.node.wait_for("progress", whole);
    assert_eq!(progress["source"], source.node.id, "{progress}");
    assert_eq!(progress["patched"], BYTES, "{progress}");
}
