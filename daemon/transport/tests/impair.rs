//! A network that a drill stops or cuts between two transports, at either end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use robust_transport::{Buffer, Cancel, Exposed, FetchError, Transport, Trouble};

use support::{chunks, pattern, transport};

/// More than one window of a fetch.
const LEN: usize = 24 << 20;
const FIRST: u64 = 1 << 20;
/// Nothing here takes long; the bound is for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(600);

/// One that serves, whose bytes are there as far as it was told, and one that fetches.
struct Pair {
    source: Transport,
    region: Exposed,
    puller: Transport,
    into: Arc<Buffer>,
}

/// Who is told of the trouble.
#[derive(Clone, Copy, Debug)]
enum Told {
    Source,
    Puller,
}

fn pair(stall_timeout: Duration) -> Pair {
    let source = transport(stall_timeout);
    let buffer = Buffer::new(LEN).unwrap();
    buffer.write_at(0, &pattern(7, LEN)).unwrap();
    let region = source.expose_growing(buffer).unwrap();
    region.ready(0..FIRST);
    Pair {
        source,
        region,
        puller: transport(stall_timeout),
        into: Buffer::new(LEN).unwrap(),
    }
}

impl Pair {
    fn trouble(&self, told: Told, trouble: Trouble, lasts: Duration) {
        match told {
            Told::Source => self.source.impair(self.puller.addr(), trouble, lasts),
            Told::Puller => self.puller.impair(self.source.addr(), trouble, lasts),
        }
    }

    /// Fetches all; `on_first` is called when the first part is there, and the rest is there after it.
    fn fetch(&self, on_first: impl FnOnce()) -> Result<u64, FetchError> {
        let (addr, key) = (self.source.addr(), self.region.key());
        let mut on_first = Some(on_first);
        let arrived = |_: robust_transport::Arrived<'_>| {
            if let Some(act) = on_first.take() {
                act();
                self.region.ready(0..LEN as u64);
            }
        };
        let cancel = Cancel::new();
        self.puller
            .fetch(addr, key, &chunks(LEN), &self.into, &cancel, arrived)
    }

    fn assert_intact(&self) {
        let same = |bytes: &[u8]| bytes == pattern(7, LEN);
        assert!(self.into.with_bytes(same).unwrap());
    }
}

#[test]
fn a_stall_that_is_over_in_time_only_delays_a_fetch() {
    for told in [Told::Source, Told::Puller] {
        let pair = pair(PATIENCE);
        let (began, stall) = (Instant::now(), Duration::from_millis(700));
        let fetched = pair.fetch(|| pair.trouble(told, Trouble::Stall, stall));
        assert_eq!(fetched.unwrap(), LEN as u64, "{told:?}");
        assert!(began.elapsed() >= stall, "{told:?}");
        pair.assert_intact();
    }
}

#[test]
fn a_longer_one_is_a_dead_source_and_what_comes_after_it_works() {
    for told in [Told::Source, Told::Puller] {
        let pair = pair(Duration::from_secs(1));
        let failed = pair.fetch(|| pair.trouble(told, Trouble::Stall, LONG));
        match failed {
            Err(FetchError::Stalled { done, total, .. }) => assert!(done < total, "{told:?}"),
            other => panic!("{told:?}: {other:?}"),
        }
        // Nor can a new connection be made, until it is over.
        let refused = pair.fetch(|| ());
        assert!(
            matches!(refused, Err(FetchError::Connect { .. })),
            "{told:?}: {refused:?}"
        );
        pair.trouble(told, Trouble::Stall, Duration::ZERO);
        let began = Instant::now();
        while let Err(error) = pair.fetch(|| ()) {
            assert!(began.elapsed() < PATIENCE, "{told:?}: {error}");
        }
        pair.assert_intact();
    }
}

#[test]
fn others_go_on_beside_a_stall() {
    let pair = pair(Duration::from_secs(1));
    let other = transport(Duration::from_secs(1));
    pair.trouble(Told::Source, Trouble::Stall, LONG);
    pair.region.ready(0..LEN as u64);
    let (addr, key) = (pair.source.addr(), pair.region.key());
    let fetched = other.fetch(addr, key, &chunks(LEN), &pair.into, &Cancel::new(), |_| ());
    assert_eq!(fetched.unwrap(), LEN as u64);
    pair.assert_intact();
}

#[test]
fn a_cut_ends_a_fetch_at_once_and_new_connections_are_refused_while_it_lasts() {
    for told in [Told::Source, Told::Puller] {
        let pair = pair(PATIENCE);
        let began = Instant::now();
        let failed = pair.fetch(|| pair.trouble(told, Trouble::Cut, LONG));
        assert!(
            matches!(
                failed,
                Err(FetchError::Connect { .. } | FetchError::Peer { .. })
            ),
            "{told:?}: {failed:?}"
        );
        assert!(began.elapsed() < PATIENCE, "{told:?}: waited for a stall");
        let refused = pair.fetch(|| ());
        assert!(
            matches!(
                refused,
                Err(FetchError::Connect { .. } | FetchError::Peer { .. })
            ),
            "{told:?}: {refused:?}"
        );
        pair.trouble(told, Trouble::Cut, Duration::ZERO);
        assert_eq!(pair.fetch(|| ()).unwrap(), LEN as u64, "{told:?}");
        pair.assert_intact();
    }
}

#[test]
fn messages_come_in_order_after_a_stall_and_their_sender_does_not_wait() {
    let pair = pair(Duration::from_secs(1));
    pair.puller.notify(pair.source.addr(), b"before").unwrap();
    assert_eq!(
        pair.source.recv_timeout(PATIENCE).as_deref(),
        Some(&b"before"[..])
    );
    pair.trouble(Told::Puller, Trouble::Stall, LONG);
    for message in [b"one", b"two"] {
        pair.puller.notify(pair.source.addr(), message).unwrap();
    }
    assert_eq!(pair.source.try_recv(), None);
    pair.trouble(Told::Puller, Trouble::Stall, Duration::ZERO);
    for message in [b"one", b"two"] {
        let came = pair.source.recv_timeout(PATIENCE);
        assert_eq!(came.as_deref(), Some(&message[..]));
    }
}
