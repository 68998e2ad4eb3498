//! Fetches that run at once have a link each, and later ones share those.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use robust_transport::{Address, Arrived, Buffer, Cancel, Exposed, FetchError, Part, RegionKey};
use robust_transport::{Transport, Trouble};
use rustix::process::Signal;
use support::{Peer, holds, pattern, transport, whole};

const MIB: usize = 1 << 20;
/// Each of two fetches has a half, larger than what may be under way of it.
const HALF: usize = 16 * MIB;
const LEN: usize = 2 * HALF;
const STALL: Duration = Duration::from_millis(700);
const LONG: Duration = Duration::from_secs(60);

type Fetched = Result<u64, FetchError>;

#[test]
#[ignore = "body of the peer process that other tests start"]
fn peer_that_serves() {
    support::serve_until_stdin_closes();
}

/// The half `at` in parts of a mebibyte.
fn half(at: usize) -> Vec<Part> {
    let part = |chunk: usize| {
        let (at, len) = ((at * HALF + chunk * MIB) as u64, MIB as u64);
        Part {
            src: at,
            dst: at,
            len,
        }
    };
    (0..HALF / MIB).map(part).collect()
}

/// Fetches both halves at once; calls `act` when some bytes of both are here. How both ended.
fn fetch_halves(
    puller: &Transport,
    (addr, key): (Address, RegionKey),
    into: &Arc<Buffer>,
    cancels: &[Cancel; 2],
    act: impl FnOnce(),
) -> [Fetched; 2] {
    let (told, begun) = channel();
    let fetch = |at: usize, told: Sender<usize>| {
        let arrived = |_: Arrived<'_>| {
            let _ = told.send(at);
        };
        puller.fetch(addr, &key, &half(at), into, &cancels[at], arrived)
    };
    std::thread::scope(|scope| {
        let second = told.clone();
        let fetches = [
            scope.spawn(move || fetch(0, told)),
            scope.spawn(move || fetch(1, second)),
        ];
        let mut seen = [false; 2];
        while seen != [true; 2] {
            seen[begun.recv_timeout(LONG).expect("both begin")] = true;
        }
        act();
        fetches.map(|fetch| fetch.join().unwrap())
    })
}

/// A source of whose halves only the beginnings are ready.
fn beginnings(stall: Duration) -> (Transport, Exposed) {
    let source = transport(stall);
    let buffer = Buffer::new(LEN).unwrap();
    buffer.write_at(0, &pattern(4, LEN)).unwrap();
    let region = source.expose_growing(buffer).unwrap();
    for at in 0..2 {
        region.ready((at * HALF) as u64..(at * HALF + MIB) as u64);
    }
    (source, region)
}

#[test]
fn two_fetches_at_once_have_a_link_each_a_third_shares_and_later_ones_use_the_first() {
    let ((source, region), puller) = (beginnings(LONG), transport(LONG));
    let (into, cancels) = (Buffer::new(LEN).unwrap(), <[Cancel; 2]>::default());
    let (addr, key) = (source.addr(), *region.key());
    let aside = Buffer::new(MIB).unwrap();
    let small =
        |puller: &Transport| puller.fetch(addr, &key, &whole(MIB), &aside, &Cancel::new(), |_| ());
    let ended = fetch_halves(&puller, (addr, key), &into, &cancels, || {
        assert_eq!(source.stats().endpoints_open, 2);
        assert_eq!(small(&puller).unwrap(), MIB as u64);
        assert_eq!(source.stats().endpoints_open, 2);
        region.ready(0..LEN as u64);
    });
    for (fetched, cancel) in ended.into_iter().zip(&cancels) {
        assert_eq!(fetched.unwrap(), HALF as u64);
        assert_eq!(cancel.fetched(), HALF as u64);
    }
    assert!(holds(&into, 4));

    // Nothing runs beside these: they need no second one.
    let other = transport(LONG);
    for _ in 0..3 {
        small(&other).unwrap();
        other.notify(addr, b"in order").unwrap();
    }
    assert_eq!(other.stats().endpoints_open, 1);
}

#[test]
fn a_source_that_dies_ends_the_fetches_of_both_links() {
    let peer = Peer::serve(4, 256 * MIB);
    let puller = transport(Duration::from_secs(5));
    let into = Buffer::new(256 * MIB).unwrap();
    // Both halves again and again, until the source is dead.
    let (told, begun) = channel();
    let errors = std::thread::scope(|scope| {
        let fetch = |at: usize, told: Sender<usize>| {
            let (puller, peer, into) = (&puller, &peer, &into);
            let once = move |told: &Sender<usize>| {
                let arrived = |_: Arrived<'_>| {
                    let _ = told.send(at);
                };
                let cancel = Cancel::new();
                puller.fetch(peer.addr, &peer.key, &half(at), into, &cancel, arrived)
            };
            scope.spawn(move || {
                loop {
                    if let Err(error) = once(&told) {
                        return error;
                    }
                }
            })
        };
        let fetches = [fetch(0, told.clone()), fetch(1, told)];
        let mut seen = [false; 2];
        while seen != [true; 2] {
            seen[begun.recv_timeout(LONG).expect("both begin")] = true;
        }
        let killed = Instant::now();
        peer.signal(Signal::KILL);
        let errors = fetches.map(|fetch| fetch.join().unwrap());
        assert!(killed.elapsed() < Duration::from_secs(4));
        errors
    });
    for error in errors {
        let gone = matches!(error, FetchError::Peer { .. } | FetchError::Connect { .. });
        assert!(gone, "{error}");
    }
    // Answered means drained: the buffer is the caller's again.
    into.with_bytes_mut(|bytes| bytes[0] = 1).unwrap();
}

#[test]
fn a_stopped_source_stalls_the_fetches_of_both_links_and_is_not_waited_for_on_an_idle_one() {
    let peer = Peer::serve(4, LEN);
    let puller = transport(STALL);
    let (into, from) = (Buffer::new(LEN).unwrap(), (peer.addr, peer.key));
    let fetch = |at: usize| {
        let cancel = Cancel::new();
        puller.fetch(peer.addr, &peer.key, &half(at), &into, &cancel, |_| ())
    };
    // Nothing can be connected to a stopped one: first both links are made.
    let connect = || {
        let cancels = <[Cancel; 2]>::default();
        let ended = fetch_halves(&puller, from, &into, &cancels, || ());
        assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    };
    connect();
    peer.signal(Signal::STOP);
    let both = std::thread::scope(|scope| {
        let fetches = [0, 1].map(|at| scope.spawn(move || fetch(at)));
        fetches.map(|fetch| fetch.join().unwrap())
    });
    for fetched in both {
        let stalled = matches!(fetched, Err(FetchError::Stalled { .. }));
        assert!(stalled, "{fetched:?}");
    }
    peer.signal(Signal::CONT);
    connect();
    peer.signal(Signal::STOP);
    let first = fetch(0);
    assert!(
        matches!(first, Err(FetchError::Stalled { .. })),
        "{first:?}"
    );
    let second = fetch(0);
    assert!(
        matches!(second, Err(FetchError::Connect { .. })),
        "{second:?}"
    );
}

#[test]
fn a_drills_stall_holds_and_its_cut_ends_the_fetches_of_both_links() {
    for at_source in [true, false] {
        let ((source, region), puller) = (beginnings(STALL), transport(STALL));
        let (into, from) = (Buffer::new(LEN).unwrap(), (source.addr(), *region.key()));
        let impair = |trouble, lasts| match at_source {
            true => source.impair(puller.addr(), trouble, lasts),
            false => puller.impair(source.addr(), trouble, lasts),
        };
        for trouble in [Trouble::Stall, Trouble::Cut] {
            let cancels = <[Cancel; 2]>::default();
            let ended = fetch_halves(&puller, from, &into, &cancels, || {
                impair(trouble, LONG);
                // Nothing but the drill is in the way of these bytes.
                region.ready(MIB as u64 * 4..MIB as u64 * 5);
            });
            for fetched in ended {
                let as_expected = match trouble {
                    Trouble::Stall => matches!(fetched, Err(FetchError::Stalled { .. })),
                    Trouble::Cut => matches!(
                        fetched,
                        Err(FetchError::Connect { .. } | FetchError::Peer { .. })
                    ),
                };
                assert!(
                    as_expected,
                    "at source {at_source}, {trouble:?}: {fetched:?}"
                );
            }
            impair(trouble, Duration::ZERO);
        }
        region.ready(0..LEN as u64);
        let cancels = <[Cancel; 2]>::default();
        let ended = fetch_halves(&puller, from, &into, &cancels, || ());
        assert!(ended.iter().all(Result::is_ok), "{ended:?}");
        assert!(holds(&into, 4));
    }
}

#[test]
fn cancelling_one_fetch_leaves_that_of_the_other_link() {
    for cancelled in 0..2 {
        let ((source, region), puller) = (beginnings(LONG), transport(LONG));
        let (into, cancels) = (Buffer::new(LEN).unwrap(), <[Cancel; 2]>::default());
        let from = (source.addr(), *region.key());
        let ended = fetch_halves(&puller, from, &into, &cancels, || {
            cancels[cancelled].cancel();
            let other = 1 - cancelled;
            region.ready((other * HALF) as u64..((other + 1) * HALF) as u64);
        });
        let is_cancelled = matches!(ended[cancelled], Err(FetchError::Cancelled));
        assert!(is_cancelled, "{ended:?}");
        assert_eq!(*ended[1 - cancelled].as_ref().unwrap(), HALF as u64);
        assert_eq!(puller.stats().errors, 0);
        assert_eq!(source.stats().endpoints_open, 2, "both links stay");
    }
}

#[test]
fn disconnecting_a_peer_closes_both_links() {
    let ((source, region), puller) = (beginnings(LONG), transport(LONG));
    let (into, cancels) = (Buffer::new(LEN).unwrap(), <[Cancel; 2]>::default());
    let from = (source.addr(), *region.key());
    let ended = fetch_halves(&puller, from, &into, &cancels, || {
        puller.disconnect(source.addr());
    });
    for fetched in ended {
        let closed = matches!(fetched, Err(FetchError::Disconnected { .. }));
        assert!(closed, "{fetched:?}");
    }
}
