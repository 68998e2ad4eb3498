//! Regions that are read while they fill, and fetches that share a buffer or are cancelled.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use robust_transport::{
    Buffer, BufferError, Cancel, Exposed, FetchError, Part, RegionKey, Transport,
};
use support::{chunks, holds, pattern, transport, whole};
use xxhash_rust::xxh3::xxh3_64;

const MIB: usize = 1 << 20;
const STALL: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(20);

type Fetched = Result<u64, FetchError>;

/// A fetch of `parts` on a thread of its own, and where its parts are told.
fn fetch<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    puller: &'scope Transport,
    (source, key): (&Transport, RegionKey),
    parts: Vec<Part>,
    into: &Arc<Buffer>,
    cancel: &'scope Cancel,
) -> (ScopedJoinHandle<'scope, Fetched>, Receiver<usize>) {
    let (told, arrived) = channel();
    let (addr, into) = (source.addr(), Arc::clone(into));
    let fetch = scope.spawn(move || {
        puller.fetch(addr, &key, &parts, &into, cancel, |part| {
            let _ = told.send(part.part);
        })
    });
    (fetch, arrived)
}

fn grown(source: &Transport, len: usize, seed: u64) -> Exposed {
    let exposed = source.expose_growing(Buffer::new(len).unwrap()).unwrap();
    let bytes = pattern(seed, len);
    exposed.buffer().write_at(0, &bytes).unwrap();
    exposed
}

#[test]
fn reads_of_a_growing_region_wait_until_their_bytes_are_ready() {
    let (source, puller) = (transport(STALL), transport(STALL));
    let exposed = grown(&source, 4 * MIB, 5);
    let (into, cancel) = (Buffer::new(4 * MIB).unwrap(), Cancel::new());
    std::thread::scope(|scope| {
        let from = (&source, *exposed.key());
        let (fetch, arrived) = fetch(scope, &puller, from, chunks(4 * MIB), &into, &cancel);
        assert!(arrived.recv_timeout(Duration::from_millis(100)).is_err());
        for chunk in [2, 0, 3] {
            let start = (chunk * MIB) as u64;
            // In two steps: half a part is no part.
            exposed.ready(start..start + 1000);
            exposed.ready(start + 1000..start + MIB as u64);
            assert_eq!(arrived.recv_timeout(LONG).unwrap(), chunk);
        }
        // Parts that have arrived are the caller's while others are under way.
        assert!(into.with_range(2 * MIB..4 * MIB, |_| ()).is_ok());
        assert!(into.write_at(0, &pattern(5, 100)).is_ok());
        let refused = into.with_range(2 * MIB - 1..2 * MIB, |_| ());
        assert!(matches!(refused, Err(BufferError::Busy { .. })));
        exposed.ready(MIB as u64..2 * MIB as u64);
        assert_eq!(fetch.join().unwrap().unwrap(), 4 * MIB as u64);
    });
    assert!(holds(&into, 5));
}

#[test]
fn a_source_that_waits_for_its_own_bytes_is_no_stalled_source() {
    let (source, puller) = (transport(STALL), transport(STALL));
    let exposed = grown(&source, MIB, 1);
    let (into, cancel) = (Buffer::new(MIB).unwrap(), Cancel::new());
    std::thread::scope(|scope| {
        let from = (&source, *exposed.key());
        let (fetch, arrived) = fetch(scope, &puller, from, chunks(MIB), &into, &cancel);
        // Five times the stall timeout, which is the thing tested.
        assert!(arrived.recv_timeout(5 * STALL).is_err());
        assert!(!fetch.is_finished());
        exposed.ready(0..MIB as u64);
        assert_eq!(fetch.join().unwrap().unwrap(), MIB as u64);
    });
    assert_eq!(puller.stats().errors, 0);
}

#[test]
fn withdrawing_a_region_refuses_the_reads_that_wait_there_and_later_ones() {
    let (source, puller) = (transport(LONG), transport(LONG));
    let exposed = grown(&source, 2 * MIB, 1);
    exposed.ready(0..MIB as u64);
    let key = *exposed.key();
    let (into, cancel) = (Buffer::new(2 * MIB).unwrap(), Cancel::new());
    std::thread::scope(|scope| {
        let (fetch, arrived) = fetch(
            scope,
            &puller,
            (&source, key),
            chunks(2 * MIB),
            &into,
            &cancel,
        );
        assert_eq!(arrived.recv_timeout(LONG).unwrap(), 0);
        drop(exposed);
        let error = fetch.join().unwrap().unwrap_err();
        assert!(matches!(error, FetchError::Refused { .. }), "{error}");
    });
    let again = puller.fetch(source.addr(), &key, &whole(1), &into, &cancel, |_| ());
    assert!(
        matches!(again, Err(FetchError::Refused { .. })),
        "{again:?}"
    );
}

#[test]
fn a_cancelled_fetch_ends_at_once_and_its_link_serves_the_next() {
    let (source, puller) = (transport(LONG), transport(LONG));
    let growing = grown(&source, 64 * MIB, 1);
    let whole_one = source.expose(Buffer::new(MIB).unwrap()).unwrap();
    let into = Buffer::new(64 * MIB).unwrap();
    // More often than reads may wait at a source: given up, they wait there no longer.
    for _ in 0..12 {
        let cancel = Cancel::new();
        std::thread::scope(|scope| {
            let from = (&source, *growing.key());
            let parts = chunks(64 * MIB);
            let (fetch, _arrived) = fetch(scope, &puller, from, parts, &into, &cancel);
            let small = Buffer::new(MIB).unwrap();
            let (addr, key) = (source.addr(), *whole_one.key());
            // Answered while the reads wait.
            puller
                .fetch(addr, &key, &whole(MIB), &small, &Cancel::new(), |_| ())
                .unwrap();
            let started = Instant::now();
            cancel.cancel();
            let error = fetch.join().unwrap().unwrap_err();
            assert!(matches!(error, FetchError::Cancelled), "{error}");
            assert!(started.elapsed() < LONG / 2);
        });
        into.with_bytes_mut(|_| ()).unwrap();
        let later = puller.fetch(
            source.addr(),
            growing.key(),
            &whole(1),
            &into,
            &cancel,
            |_| (),
        );
        assert!(matches!(later, Err(FetchError::Cancelled)), "{later:?}");
    }
    assert_eq!(puller.stats().endpoints_open, 2, "none was closed or added");
    assert_eq!(puller.stats().errors, 0);
}

#[test]
fn parts_that_overlap_are_refused_within_a_fetch_and_between_fetches() {
    let (source, puller) = (transport(LONG), transport(LONG));
    let growing = grown(&source, 2 * MIB, 1);
    let into = Buffer::new(2 * MIB).unwrap();
    let part = |dst: u64, len: u64| Part { src: 0, dst, len };
    let cancel = Cancel::new();
    let fetch_parts =
        |parts: &[Part]| puller.fetch(source.addr(), growing.key(), parts, &into, &cancel, |_| ());
    let twice = fetch_parts(&[part(0, 10), part(10, 10), part(19, 5)]);
    assert!(
        matches!(twice, Err(FetchError::Overlap { part: 2 })),
        "{twice:?}"
    );
    into.with_bytes_mut(|_| ()).unwrap();
    std::thread::scope(|scope| {
        // The look below may have the bytes in the very instant when the fetch wants them.
        let fetch = scope.spawn(|| {
            loop {
                match fetch_parts(&[part(100, 50)]) {
                    Err(FetchError::Buffer(BufferError::Busy { .. })) => {}
                    ended => break ended,
                }
            }
        });
        while into.with_bytes(|_| ()).is_ok() {
            std::thread::yield_now();
        }
        let second = fetch_parts(&[part(0, 100), part(149, 1)]);
        assert!(
            matches!(second, Err(FetchError::Overlap { part: 1 })),
            "{second:?}"
        );
        growing.ready(0..MIB as u64);
        fetch.join().unwrap().unwrap();
    });
    fetch_parts(&[part(100, 50)]).unwrap();
    // A loan to the owner is not a fetch.
    let busy = into
        .with_range(0..1, |_| fetch_parts(&[part(0, 1)]))
        .unwrap();
    assert!(matches!(
        busy,
        Err(FetchError::Buffer(BufferError::Busy { .. }))
    ));
}

#[test]
fn a_callback_that_panics_ends_its_fetch_and_frees_the_buffer() {
    let (source, puller) = (transport(LONG), transport(LONG));
    let growing = grown(&source, 2 * MIB, 1);
    growing.ready(0..MIB as u64);
    let into = Buffer::new(2 * MIB).unwrap();
    std::thread::scope(|scope| {
        let panicked = scope.spawn(|| {
            let parts = chunks(2 * MIB);
            let (addr, cancel) = (source.addr(), Cancel::new());
            puller.fetch(addr, growing.key(), &parts, &into, &cancel, |_| {
                panic!("on purpose")
            })
        });
        assert!(panicked.join().is_err());
    });
    let deadline = Instant::now() + LONG;
    while into.with_bytes_mut(|_| ()).is_err() {
        assert!(Instant::now() < deadline, "the buffer is still held");
        std::thread::yield_now();
    }
}

#[test]
fn a_chain_of_relays_passes_on_what_it_has_verified() {
    let len = 24 * MIB + 77;
    let nodes: Vec<Transport> = (0..4).map(|_| transport(Duration::from_secs(5))).collect();
    let exposed: Vec<Exposed> = nodes
        .iter()
        .map(|node| node.expose_growing(Buffer::new(len).unwrap()).unwrap())
        .collect();
    exposed[0].buffer().write_at(0, &pattern(8, len)).unwrap();
    std::thread::scope(|scope| {
        for at in 1..nodes.len() {
            let (nodes, exposed) = (&nodes, &exposed);
            scope.spawn(move || {
                let (parts, cancel) = (chunks(len), Cancel::new());
                let (addr, key) = (nodes[at - 1].addr(), exposed[at - 1].key());
                let into = exposed[at].buffer();
                nodes[at]
                    .fetch(addr, key, &parts, into, &cancel, |arrived| {
                        let Part { dst, len, .. } = parts[arrived.part];
                        exposed[at].ready(dst..dst + len);
                    })
                    .unwrap();
            });
        }
        exposed[0].ready(0..len as u64);
    });
    assert!(exposed.iter().all(|exposed| holds(exposed.buffer(), 8)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    /// Every byte of every part, whatever their sizes and the order in which bytes get ready.
    #[test]
    fn parts_of_any_size_arrive_whole_in_any_order_of_readiness(
        lens in proptest::collection::vec(0..1_400_000usize, 1..12),
        order in any::<u64>(),
    ) {
        let (source, puller) = (transport(LONG), transport(LONG));
        let total: usize = lens.iter().sum::<usize>().max(1);
        let exposed = grown(&source, total, order);
        let into = Buffer::new(total).unwrap();
        let mut parts = Vec::new();
        let mut at = 0u64;
        for len in lens {
            // Mirrored: targets in the opposite order.
            let (len, dst) = (len as u64, total as u64 - at - len as u64);
            parts.push(Part { src: at, dst, len });
            at += len;
        }
        let mut growth: Vec<(u64, u64)> = (0..total as u64)
            .step_by(99_999)
            .map(|from| (from, (from + 99_999).min(total as u64)))
            .collect();
        growth.sort_by_key(|(from, _)| from.wrapping_mul(order | 1).rotate_left(17));
        let expected = pattern(order, total);
        let mut told = vec![0; parts.len()];
        std::thread::scope(|scope| {
            scope.spawn(|| growth.iter().for_each(|(from, to)| exposed.ready(*from..*to)));
            let (addr, cancel) = (source.addr(), Cancel::new());
            puller.fetch(addr, exposed.key(), &parts, &into, &cancel, |arrived| {
                let Part { src, len, .. } = parts[arrived.part];
                assert!(arrived.bytes().unwrap() == &expected[src as usize..(src + len) as usize]);
                assert_eq!(arrived.digest().unwrap(), xxh3_64(arrived.bytes().unwrap()));
                told[arrived.part] += 1;
            })
        }).unwrap();
        prop_assert!(told.iter().all(|times| *times == 1));
    }
}
