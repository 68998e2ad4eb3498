//! Who is several versions behind gets what changed in each of them, one after the other, or all of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use nix::sys::signal::Signal;
use serde_json::Value;
use support::{MIB, Puller, Source, Version};

const BYTES: usize = 16 * MIB;
/// Words of a million that a step changes, and more than what its patches take.
const FEW: u32 = 10_000;
const LITTLE: u64 = BYTES as u64 / 100;

/// Pullers that serve version 1, each pulled from the source itself.
fn settled<const N: usize>(source: &Source) -> [Puller; N] {
    std::array::from_fn(|at| {
        let mut puller = Puller::of_short_words(2 + at as u64, source.bytes());
        pull(source, &source.line(), &mut puller);
        puller
    })
}

/// Pulls what the source serves, from there or from a relay; bytes that came over the network.
fn pull(source: &Source, from: &Value, puller: &mut Puller) -> u64 {
    let version = source.version();
    let before = puller.node.fetched();
    puller.order(&source.manifest, std::slice::from_ref(from));
    assert_eq!(puller.node.wait_done(version), ("ok".into(), None));
    assert_eq!(puller.node.checked(), Some(version));
    puller.node.fetched() - before
}

/// A step that somebody follows at once, so that its patches are all made when this returns.
fn step(source: &mut Source, version: u64, changed_ppm: u32, witness: &mut Puller) -> u64 {
    source.step(version, changed_ppm);
    pull(source, &source.line(), witness)
}

#[test]
fn who_is_two_or_three_versions_behind_gets_what_changed_in_each() {
    let mut source = Source::of_short_words(1, Version::new(1, BYTES, MIB));
    let [mut first, mut second, mut third] = settled(&source);
    let mut links = vec![step(&mut source, 2, FEW, &mut first)];
    links.push(step(&mut source, 3, FEW, &mut first));
    assert_eq!(source.links(), 2);
    let two = pull(&source, &source.line(), &mut second);
    assert_eq!(two, links.iter().sum::<u64>());
    links.push(step(&mut source, 4, FEW, &mut first));
    let three = pull(&source, &source.line(), &mut third);
    assert_eq!(three, links.iter().sum::<u64>());
    assert!(three < 3 * LITTLE, "{three}");
    // And from there on as those that were never behind.
    source.step(5, FEW);
    for puller in [&mut second, &mut third] {
        assert!(pull(&source, &source.line(), puller) < 2 * LITTLE);
    }
}

#[test]
fn a_relay_passes_on_the_links_that_it_came_by_and_those_that_it_followed_before() {
    let mut source = Source::of_short_words(1, Version::new(1, BYTES, MIB));
    let [mut follower, mut behind, mut reader, mut other, mut last] = settled(&source);
    step(&mut source, 2, FEW, &mut follower);
    pull(&source, &source.line(), &mut last);
    source.step(3, FEW);
    // Both are two behind, and one reads where the other one still fills.
    behind.order(&source.manifest, &[source.line()]);
    let from = behind.line();
    assert!(pull(&source, &from, &mut reader) < 2 * LITTLE);
    assert_eq!(behind.node.wait_done(3), ("ok".into(), None));
    // The relays have it all themselves.
    pull(&source, &source.line(), &mut follower);
    source.node.signal(Signal::SIGKILL);
    let from = follower.line();
    assert!(pull(&source, &from, &mut other) < 2 * LITTLE);
    // One that is not as far behind takes the last link of them.
    let from = reader.line();
    assert!(pull(&source, &from, &mut last) < LITTLE);
}

#[test]
fn a_version_that_is_full_ends_what_leads_to_it() {
    let mut source = Source::with_full_versions(1, Version::new(1, BYTES, MIB), 3);
    let [mut first, mut second] = settled(&source);
    assert!(step(&mut source, 2, FEW, &mut first) < LITTLE);
    assert_eq!(step(&mut source, 3, FEW, &mut first), BYTES as u64);
    assert_eq!(source.links(), 0);
    assert!(step(&mut source, 4, FEW, &mut first) < LITTLE);
    assert_eq!(source.links(), 1);
    assert_eq!(pull(&source, &source.line(), &mut second), BYTES as u64);
}

#[test]
fn a_link_that_is_damaged_in_one_chunk_costs_that_chunk_and_is_counted() {
    let mut source = Source::of_short_words(1, Version::new(1, BYTES, MIB));
    let [mut first, mut behind] = settled(&source);
    step(&mut source, 2, FEW, &mut first);
    // What the next patches are made of: they are wrong for everybody.
    source.node.corrupt(5 * MIB + 5, 1);
    source.step(3, FEW);
    let before = behind.node.fetched();
    behind.order(&source.manifest, &[source.line()]);
    let counted = |p: &Value| p["version"] == 3 && p["wrong_patches"] == 1;
    behind.node.wait_for("progress", counted);
    assert_eq!(behind.node.wait_done(3), ("ok".into(), None));
    assert_eq!(behind.node.checked(), Some(3));
    let fetched = behind.node.fetched() - before;
    let few_and_a_chunk = MIB as u64..MIB as u64 + 2 * LITTLE;
    assert!(few_and_a_chunk.contains(&fetched), "{fetched}");
}

#[test]
fn a_chunk_that_came_whole_in_between_comes_whole() {
    let mut source = Source::of_short_words(1, Version::new(1, BYTES, MIB));
    let [mut first, mut behind] = settled(&source);
    source.step_but(2, FEW, 3 * MIB, MIB);
    let whole_one = pull(&source, &source.line(), &mut first);
    assert!(
        (MIB as u64..MIB as u64 + LITTLE).contains(&whole_one),
        "{whole_one}"
    );
    step(&mut source, 3, FEW, &mut first);
    behind.order(&source.manifest, &[source.line()]);
    let whole = |p: &Value| p["version"] == 3 && p["bytes"] == BYTES;
    let progress = behind.node.wait_for("progress", whole);
    assert_eq!(progress["wrong_patches"], 0, "{progress}");
    assert_eq!(progress["patched"], BYTES - MIB, "{progress}");
    assert_eq!(behind.node.wait_done(3), ("ok".into(), None));
    assert_eq!(behind.node.checked(), Some(3));
}

#[test]
fn the_patches_of_older_versions_have_a_quarter_of_one_together_and_the_oldest_go() {
    let mut source = Source::of_short_words(1, Version::new(1, BYTES, MIB));
    let [mut first, mut middle, mut last] = settled(&source);
    // 6.6 % of a version each, so three of those before the newest have room.
    let quarter = 250_000;
    for version in 2..=7 {
        step(&mut source, version, quarter, &mut first);
        assert_eq!(source.links() as u64, (version - 1).min(4));
        if version == 3 {
            pull(&source, &source.line(), &mut middle);
        }
    }
    let four_links = pull(&source, &source.line(), &mut middle);
    let bounds = BYTES as u64 / 4..BYTES as u64 / 3;
    assert!(bounds.contains(&four_links), "{four_links}");
    assert_eq!(pull(&source, &source.line(), &mut last), BYTES as u64);
}

#[test]
fn eight_links_are_offered_at_most() {
    const BYTES: usize = 2 * MIB;
    let mut source = Source::of_short_words(1, Version::new(1, BYTES, MIB));
    let [mut first, mut ninth] = settled(&source);
    for version in 2..=10 {
        step(&mut source, version, FEW, &mut first);
    }
    assert_eq!(source.links(), 8);
    assert_eq!(first.links(), 8);
    assert_eq!(pull(&source, &source.line(), &mut ninth), BYTES as u64);
}

#[test]
fn what_changed_since_is_not_taken_where_all_of_it_is_shorter() {
    const BYTES: usize = 24 * MIB;
    let mut source = Source::of_short_words(1, Version::new(1, BYTES, MIB));
    let [mut first, mut behind] = settled(&source);
    // Nearly all of it changes, and back again: one chunk alone is another one then.
    source.step(2, 250_000);
    pull(&source, &source.line(), &mut first);
    source.publish_but(3, 1, 5 * MIB, MIB);
    pull(&source, &source.line(), &mut first);
    assert_eq!(source.links(), 2);
    let fetched = pull(&source, &source.line(), &mut behind);
    let a_chunk_and_an_index = MIB as u64..MIB as u64 + 1000;
    assert!(a_chunk_and_an_index.contains(&fetched), "{fetched}");
}

#[test]
fn a_relay_that_is_killed_in_the_middle_of_a_chain_is_left_for_another_source_that_goes_on() {
    let mut source = Source::of_short_words(1, Version::new(1, BYTES, MIB));
    let [mut relay, mut behind] = settled(&source);
    let link = step(&mut source, 2, FEW, &mut relay);
    source.step(3, FEW);
    // The relay has what led to version 2, and waits for the rest.
    source.node.signal(Signal::SIGSTOP);
    relay.order(&source.manifest, &[source.line()]);
    assert_eq!(relay.links(), 2);
    let before = behind.node.fetched();
    behind.order(&source.manifest, &[relay.line()]);
    while behind.node.fetched() < before + link {
        std::thread::yield_now();
    }
    relay.node.signal(Signal::SIGKILL);
    assert_eq!(behind.node.wait_done(3), ("source".into(), Some(2)));
    source.node.signal(Signal::SIGCONT);
    let left = pull(&source, &source.line(), &mut behind);
    assert!(left < link * 5 / 4, "{left}: the other link, and an index");
    assert_eq!(behind.links(), 2);
}
