//! Members of a chain are killed, stopped, cut off or corrupted at random points of a pull. After
//! each, all that is left serves exactly the manifest's bytes, and hardly anything came twice.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../tests/bench/src/weights/netns.rs"]
#[allow(dead_code, missing_docs)]
mod netns;
mod support;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;
use serde_json::Value;
use support::{MIB, Node, Puller, Source, Version};

const BYTES: usize = 24 * MIB;
/// As much as one message on the wire carries: of a chunk is either all there or nothing.
const CHUNK: usize = MIB / 2;
const ROUNDS: usize = 6;

/// Other cut points in every run; the test that failed prints the seed.
struct Cuts(u64);

impl Cuts {
    fn new() -> Self {
        let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        eprintln!("cut points from seed {}", seed.as_nanos());
        Self(seed.as_nanos() as u64 | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound.max(1)
    }

    /// Some point of a pull that takes about `whole`.
    fn wait_within(&mut self, whole: Duration) {
        std::thread::sleep(Duration::from_micros(self.below(whole.as_micros() as u64)));
    }
}

/// A trainer, a chain of pullers behind it, and a second source for who needs one.
struct Chain {
    trainer: Source,
    spare: Source,
    pullers: Vec<Puller>,
}

impl Chain {
    fn start(length: u64) -> Self {
        let version = Version::new(1, BYTES, CHUNK);
        Chain {
            trainer: Source::start(100, version),
            spare: Source::start(101, version),
            pullers: (1..=length).map(|id| Puller::start(id, BYTES)).collect(),
        }
    }

    fn order_all(&mut self) {
        let mut source = self.trainer.line();
        for puller in &mut self.pullers {
            puller.order(&self.trainer.manifest, &[source]);
            source = puller.line();
        }
    }

    fn member(&mut self, at: usize) -> &mut Node {
        match at {
            0 => &mut self.trainer.node,
            _ => &mut self.pullers[at - 1].node,
        }
    }

    /// Waits until all but the victim serve the version. Who lost a source names `victim` and goes
    /// on with the second source; whether somebody did.
    fn settle(&mut self, victim: usize) -> bool {
        let mut hit = false;
        let victim_id = self.member(victim).id;
        for (at, puller) in self.pullers.iter_mut().enumerate() {
            if at + 1 == victim {
                continue;
            }
            let (mut result, source) = puller.node.wait_done(1);
            if result != "ok" {
                assert_eq!((at, source), (victim, Some(victim_id)), "{result}");
                hit = true;
                puller.order(&self.trainer.manifest, &[self.spare.line()]);
                (result, _) = puller.node.wait_done(1);
            }
            assert_eq!(result, "ok");
            assert_eq!(puller.node.checked(), Some(1));
            let again = puller.node.fetched() - BYTES as u64;
            assert!(again <= CHUNK as u64, "{again} bytes came twice");
        }
        hit
    }
}

/// How long the whole chain takes when nothing happens.
fn undisturbed() -> Duration {
    let mut chain = Chain::start(3);
    let started = Instant::now();
    chain.order_all();
    for puller in &mut chain.pullers {
        assert_eq!(puller.node.wait_done(1).0, "ok");
    }
    started.elapsed()
}

/// Repeats a round until it met a pull often enough: in some the pull is through by then.
fn in_mid_pull(mut round: impl FnMut() -> bool) {
    let mut hits = 0;
    for _ in 0..4 * ROUNDS {
        hits += usize::from(round());
        if hits == ROUNDS {
            return;
        }
    }
    assert!(hits > 0, "never in mid pull");
}

/// Strikes the victim until the pull behind it was met. Behind the last puller there is none.
fn strike(victim: usize, signal: Signal) {
    let (mut cuts, whole) = (Cuts::new(), undisturbed());
    in_mid_pull(|| {
        let mut chain = Chain::start(3);
        chain.order_all();
        cuts.wait_within(whole);
        chain.member(victim).signal(signal);
        chain.settle(victim) || victim == 3
    });
}

#[test]
fn a_source_is_killed_in_mid_pull_and_its_chain_ends_complete() {
    strike(0, Signal::SIGKILL);
}

#[test]
fn a_source_is_stopped_in_mid_pull_and_its_chain_ends_complete() {
    strike(0, Signal::SIGSTOP);
}

#[test]
fn a_relay_is_killed_in_mid_pull_and_those_behind_it_end_complete() {
    strike(1, Signal::SIGKILL);
    strike(2, Signal::SIGKILL);
}

#[test]
fn a_relay_is_stopped_in_mid_pull_and_those_behind_it_end_complete() {
    strike(2, Signal::SIGSTOP);
}

#[test]
fn the_last_puller_is_killed_or_stopped_and_nobody_else_notices() {
    strike(3, Signal::SIGKILL);
    strike(3, Signal::SIGSTOP);
}

#[test]
fn a_puller_that_was_killed_comes_back_and_pulls_from_a_relay() {
    let (mut cuts, whole) = (Cuts::new(), undisturbed());
    for _ in 0..ROUNDS {
        let mut chain = Chain::start(2);
        chain.order_all();
        cuts.wait_within(whole);
        chain.member(2).signal(Signal::SIGKILL);
        chain.pullers[1] = Puller::start(2, BYTES);
        let relay = chain.pullers[0].line();
        chain.pullers[1].order(&chain.trainer.manifest, &[relay]);
        for puller in &mut chain.pullers {
            assert_eq!(puller.node.wait_done(1).0, "ok");
            assert_eq!(puller.node.checked(), Some(1));
        }
    }
}

#[test]
fn one_of_two_ranks_dies_and_what_came_of_both_is_kept() {
    let (mut cuts, whole) = (Cuts::new(), undisturbed());
    let half = BYTES / 2 + 3 * MIB / 2;
    in_mid_pull(|| {
        let mut chain = Chain::start(1);
        let ranks = [chain.trainer.part(0, half), chain.spare.part(half, BYTES)];
        chain.pullers[0].order(&chain.trainer.manifest, &ranks);
        cuts.wait_within(whole / 3);
        chain.member(0).signal(Signal::SIGKILL);
        chain.settle(0)
    });
}

#[test]
fn a_corrupted_chunk_is_fetched_from_elsewhere_and_its_source_named() {
    let mut cuts = Cuts::new();
    for round in 0..ROUNDS {
        let mut chain = Chain::start(2);
        let at = cuts.below(BYTES as u64 - 8) as usize;
        chain.trainer.node.corrupt(at, 1 + round);
        chain.order_all();
        let (first, rest) = chain.pullers.split_first_mut().unwrap();
        assert_eq!(first.node.wait_done(1), ("corrupt".into(), Some(100)));
        first.order(&chain.trainer.manifest, &[chain.spare.line()]);
        // Who reads at the first puller never saw the wrong bytes, and never had to ask anew.
        for puller in [first, &mut rest[0]] {
            assert_eq!(puller.node.wait_done(1), ("ok".into(), None));
            assert_eq!(puller.node.checked(), Some(1));
        }
        assert_eq!(chain.pullers[1].node.fetched(), BYTES as u64);
    }
}

#[test]
fn corruption_in_mid_pull_is_never_served() {
    let (mut cuts, whole) = (Cuts::new(), undisturbed());
    in_mid_pull(|| {
        let mut chain = Chain::start(1);
        chain.order_all();
        cuts.wait_within(whole / 3);
        let at = cuts.below(BYTES as u64 - 8) as usize;
        chain.trainer.node.corrupt(at, 8);
        let puller = &mut chain.pullers[0];
        let (mut result, source) = puller.node.wait_done(1);
        let hit = result != "ok";
        if hit {
            assert_eq!((&*result, source), ("corrupt", Some(100)));
            puller.order(&chain.trainer.manifest, &[chain.spare.line()]);
            (result, _) = puller.node.wait_done(1);
        }
        assert_eq!(result, "ok");
        assert_eq!(puller.node.checked(), Some(1));
        hit
    });
}

#[test]
fn a_damaged_relay_is_named_and_what_it_served_right_is_kept() {
    let mut chain = Chain::start(2);
    let trainer = chain.trainer.line();
    let manifest: Value = chain.trainer.manifest.clone();
    let [first, second] = &mut chain.pullers[..] else {
        panic!("two pullers")
    };
    first.order(&manifest, std::slice::from_ref(&trainer));
    assert_eq!(first.node.wait_done(1).0, "ok");
    first.node.corrupt(BYTES / 2, 1);
    second.order(&manifest, &[first.line()]);
    assert_eq!(second.node.wait_done(1), ("corrupt".into(), Some(1)));
    second.order(&manifest, &[trainer]);
    assert_eq!(second.node.wait_done(1).0, "ok");
    assert_eq!(second.node.checked(), Some(1));
}

/// Machines in miniature; none, with the reason recorded, where they cannot be had.
fn machines() -> Option<netns::Net> {
    robust_needs::program("ip")?;
    robust_needs::program("tc")?;
    let made = netns::Net::new();
    made.map_err(|why| robust_needs::skip(why, robust_needs::ROOT))
        .ok()
}

/// Two fetches share a connection, and its source answers all reads of the one before those of the other.
#[test]
fn a_slow_link_on_which_bytes_flow_is_no_stalled_source() {
    let Some(mut net) = machines() else {
        return;
    };
    let hosts: Vec<_> = (0..2).map(|_| net.host(Some("120mbit")).unwrap()).collect();
    // A window of each of the four fetches: that of the first ones takes longer than a stall.
    let (chunk, lane) = (1023 << 10, (8 * 1023) << 10);
    let version = Version::new(1, 4 * lane, chunk);
    let source = Source::start_in(100, version, &hosts[0].wrap(), &hosts[0].ip);
    let mut puller = Puller::start_in(1, 4 * lane, &hosts[1].wrap(), &hosts[1].ip);
    let mut line = source.line();
    line["starts"] = vec![lane, 2 * lane, 3 * lane].into();
    puller.order(&source.manifest, &[line]);
    assert_eq!(puller.node.wait_done(1).0, "ok");
    assert_eq!(puller.node.checked(), Some(1));
    assert_eq!(puller.node.fetched(), 4 * lane as u64);
}

#[test]
fn a_source_behind_a_cut_network_is_given_up_within_the_time_allowed() {
    let Some(mut net) = machines() else {
        return;
    };
    let hosts: Vec<_> = (0..3).map(|_| net.host(Some("500mbit")).unwrap()).collect();
    let version = Version::new(1, BYTES, CHUNK);
    let source = |at: usize| Source::start_in(at as u64, version, &hosts[at].wrap(), &hosts[at].ip);
    let (far, other) = (source(0), source(1));
    let mut puller = Puller::start_in(2, BYTES, &hosts[2].wrap(), &hosts[2].ip);
    puller.order(&far.manifest, &[far.line()]);
    puller.wait_bytes(1, (BYTES / 4) as u64);
    net.cut(&hosts[0]).unwrap();
    let cut = Instant::now();
    assert_eq!(puller.node.wait_done(1), ("source".into(), Some(0)));
    assert!(cut.elapsed() < 3 * support::STALL, "{:?}", cut.elapsed());
    puller.order(&far.manifest, &[other.line()]);
    assert_eq!(puller.node.wait_done(1).0, "ok");
    assert_eq!(puller.node.checked(), Some(1));
    assert!(puller.node.fetched() <= (BYTES + CHUNK) as u64);
}
