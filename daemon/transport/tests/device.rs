//! Buffers in a device's memory: the real bindings over a driver of plain memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::process::Child;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cuda_fake::{Count, Fake, Knob};
use robust_transport::{
    Buffer, BufferError, Cancel, Exposed, FetchError, Part, SMALLEST_STAGING, Staging, Transport,
};
use rustix::process::{Pid, Signal, kill_process};
use support::{chunks, pattern, start_pullers, transport, whole};
use xxhash_rust::xxh3::xxh3_64;

const MIB: usize = 1 << 20;
const STALL: Duration = Duration::from_millis(400);
const LONG: Duration = Duration::from_secs(20);

/// The driver is the process's: under `cargo test` the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// The driver and what it had counted when the test began.
struct Driver {
    fake: Fake,
    misuses: u64,
    _turn: MutexGuard<'static, ()>,
}

impl Driver {
    fn new() -> Driver {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let fake = Fake::load().expect("the library is built with the tests");
        let misuses = fake.count(Count::Misuses);
        fake.set(Knob::ForgetMost, 1);
        Driver {
            fake,
            misuses,
            _turn: turn,
        }
    }

    fn wait_for_held_copies(&self) {
        while self.fake.count(Count::Held) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let knobs = [
            Knob::FailCopy,
            Knob::FailSync,
            Knob::Hold,
            Knob::FlipDown,
            Knob::FlipUp,
        ];
        knobs.into_iter().for_each(|knob| self.fake.set(knob, 0));
        if !std::thread::panicking() {
            assert_eq!(self.fake.count(Count::Misuses), self.misuses);
        }
    }
}

#[test]
#[ignore = "body of the peer process that other tests start"]
fn peer_that_pulls() {
    support::pull_for_ever();
}

fn filled(buffer: Arc<Buffer>, seed: u64) -> Arc<Buffer> {
    buffer.write_at(0, &pattern(seed, buffer.len())).unwrap();
    buffer
}

/// Whether the buffer holds `pattern(seed, len)`, wherever it lies.
fn holds(buffer: &Buffer, seed: u64) -> bool {
    let mut bytes = vec![0; buffer.len()];
    buffer.read_at(0, &mut bytes).unwrap();
    bytes == pattern(seed, bytes.len())
}

fn fetch_all(
    puller: &Transport,
    source: &Transport,
    exposed: &Exposed,
    into: &Arc<Buffer>,
) -> Result<u64, FetchError> {
    let (parts, cancel) = (chunks(into.len()), Cancel::new());
    puller.fetch(source.addr(), exposed.key(), &parts, into, &cancel, |_| ())
}

#[test]
fn damage_flips_one_bit_wherever_the_bytes_lie() {
    let _driver = Driver::new();
    let staging = Staging::open(0, SMALLEST_STAGING).unwrap();
    let (len, at) = (MIB, 4096);
    let device = Buffer::on_device(&staging, len).unwrap();
    for buffer in [Buffer::new(len).unwrap(), device] {
        let buffer = filled(buffer, 3);
        let _held = buffer.lend().unwrap();
        buffer.damage(at).unwrap();
        let mut expected = pattern(3, len);
        expected[at] ^= 1;
        let mut bytes = vec![0; len];
        buffer.read_at(0, &mut bytes).unwrap();
        assert!(bytes == expected);
        let beyond = buffer.damage(len);
        assert!(
            matches!(beyond, Err(BufferError::Bounds { .. })),
            "{beyond:?}"
        );
    }
}

#[test]
fn bytes_are_the_same_whichever_side_is_on_a_device() {
    let driver = Driver::new();
    let (source, puller) = (transport(LONG), transport(LONG));
    let staging = Staging::open(0, 4 * MIB).unwrap();
    let other = Staging::open(1, SMALLEST_STAGING).unwrap();
    let len = 9 * MIB + 12_345;
    let host = || Buffer::new(len).unwrap();
    let on = |staging| Buffer::on_device(staging, len).unwrap();
    let pairs = [
        (host(), on(&staging)),
        (on(&staging), host()),
        (on(&staging), on(&staging)),
        (on(&staging), on(&other)),
    ];
    for (seed, (from, into)) in (3..).zip(pairs) {
        let exposed = source.expose(filled(from, seed)).unwrap();
        let (parts, expected) = (chunks(len), pattern(seed, len));
        let mut told = Vec::new();
        let arrived = |part: robust_transport::Arrived<'_>| {
            let Part { src, len, .. } = parts[part.part];
            let bytes = &expected[src as usize..(src + len) as usize];
            assert_eq!(part.digest().unwrap(), xxh3_64(bytes));
            assert_eq!(part.bytes().is_some(), into.device_memory().is_none());
            assert!(part.bytes().is_none_or(|here| here == bytes));
            told.push(part.part);
        };
        let cancel = Cancel::new();
        let key = exposed.key();
        let fetched = puller.fetch(source.addr(), key, &parts, &into, &cancel, arrived);
        assert_eq!(fetched.unwrap(), len as u64);
        assert_eq!(cancel.fetched(), len as u64);
        told.sort_unstable();
        assert!(told.into_iter().eq(0..parts.len()));
        assert!(holds(&into, seed), "pair {seed}");
    }
    assert_eq!(puller.stats().errors + source.stats().errors, 0);
    let bound = (4 * MIB + SMALLEST_STAGING) as u64;
    assert_eq!(driver.fake.count(Count::PinnedMost), bound);
}

#[test]
fn a_part_too_short_to_be_digested_on_the_way_is_digested_where_it_lies() {
    let _driver = Driver::new();
    let (source, puller) = (transport(LONG), transport(LONG));
    let staging = Staging::open(0, SMALLEST_STAGING).unwrap();
    let exposed = source
        .expose(filled(Buffer::new(1000).unwrap(), 4))
        .unwrap();
    let into = Buffer::on_device(&staging, 1000).unwrap();
    let part = |src, dst, len| Part { src, dst, len };
    let parts = [part(10, 700, 100), part(0, 0, 0), part(500, 3, 1)];
    let plain = pattern(4, 1000);
    let mut told = 0;
    let arrived = |arrived: robust_transport::Arrived<'_>| {
        let Part { src, len, .. } = parts[arrived.part];
        let bytes = &plain[src as usize..(src + len) as usize];
        assert_eq!(arrived.digest().unwrap(), xxh3_64(bytes));
        told += 1;
    };
    let (addr, key) = (source.addr(), exposed.key());
    let fetched = puller.fetch(addr, key, &parts, &into, &Cancel::new(), arrived);
    assert_eq!((fetched.unwrap(), told), (101, 3));
    let mut expected = vec![0; 1000];
    expected[700..800].copy_from_slice(&plain[10..110]);
    expected[3] = plain[500];
    let mut all = vec![0; 1000];
    into.read_at(0, &mut all).unwrap();
    assert_eq!(all, expected);
}

#[test]
fn many_fetches_share_one_block_each_way_and_all_end() {
    let driver = Driver::new();
    let (source, puller) = (transport(STALL), transport(STALL));
    let near = Staging::open(0, SMALLEST_STAGING).unwrap();
    let far = Staging::open(1, SMALLEST_STAGING).unwrap();
    let len = 6 * MIB + 77;
    let from = filled(Buffer::on_device(&far, len).unwrap(), 8);
    let exposed = source.expose(from).unwrap();
    let into: Vec<_> = (0..4)
        .map(|_| Buffer::on_device(&near, len).unwrap())
        .collect();
    std::thread::scope(|scope| {
        for into in &into {
            scope.spawn(|| fetch_all(&puller, &source, &exposed, into).unwrap());
        }
    });
    assert!(into.iter().all(|buffer| holds(buffer, 8)));
    let bound = 2 * SMALLEST_STAGING as u64;
    assert_eq!(driver.fake.count(Count::PinnedMost), bound);
    // Waits for an own block are no peer's fault.
    assert_eq!(puller.stats().errors + source.stats().errors, 0);
}

/// Each has one block for what it fetches, asks the other first for what that has not got yet, and
/// then the trainer for what the other waits for.
#[test]
fn two_relays_that_wait_for_each_others_halves_do_not_wait_for_each_others_blocks() {
    let _driver = Driver::new();
    let trainer = transport(STALL);
    let plain = filled(Buffer::new(2 * MIB).unwrap(), 6);
    let published = trainer.expose(plain).unwrap();
    let relay = |ordinal| {
        let transport = transport(STALL);
        let staging = Staging::open(ordinal, SMALLEST_STAGING).unwrap();
        let buffer = Buffer::on_device(&staging, 2 * MIB).unwrap();
        let exposed = transport.expose_growing(buffer).unwrap();
        (transport, exposed)
    };
    let relays = [relay(0), relay(1)];
    let half = |at: usize| {
        let (at, len) = ((at * MIB) as u64, MIB as u64);
        [Part {
            src: at,
            dst: at,
            len,
        }]
    };
    std::thread::scope(|scope| {
        let fetch = |to: usize, from: &Transport, exposed: &Exposed, at: usize| {
            let (transport, own) = &relays[to];
            let (addr, key, into) = (from.addr(), *exposed.key(), Arc::clone(own.buffer()));
            scope.spawn(move || {
                let range = at as u64 * MIB as u64..(at as u64 + 1) * MIB as u64;
                let fetched = transport.fetch(addr, &key, &half(at), &into, &Cancel::new(), |_| {
                    own.ready(range.clone());
                });
                assert_eq!(fetched.unwrap(), MIB as u64);
            });
        };
        for to in [0, 1] {
            let (from, exposed) = &relays[1 - to];
            fetch(to, from, exposed, 1 - to);
        }
        // They have the blocks by now: that is what the rest is about.
        std::thread::sleep(STALL / 2);
        for to in [0, 1] {
            fetch(to, &trainer, &published, to);
        }
    });
    assert!(relays.iter().all(|(_, own)| holds(own.buffer(), 6)));
}

#[test]
fn a_bit_that_flips_on_the_way_out_of_a_device_is_in_the_digest() {
    let driver = Driver::new();
    let (source, puller) = (transport(LONG), transport(LONG));
    let staging = Staging::open(0, 4 * MIB).unwrap();
    let len = 3 * MIB;
    let from = filled(Buffer::on_device(&staging, len).unwrap(), 2);
    let exposed = source.expose(from).unwrap();
    let expected = pattern(2, len);
    for into in [
        Buffer::new(len).unwrap(),
        Buffer::on_device(&staging, len).unwrap(),
    ] {
        driver.fake.set(Knob::FlipDown, 3);
        let mut wrong = Vec::new();
        let arrived = |part: robust_transport::Arrived<'_>| {
            let bytes = &expected[part.part * MIB..][..MIB];
            if part.digest().unwrap() != xxh3_64(bytes) {
                wrong.push(part.part);
            }
        };
        let (addr, key) = (source.addr(), exposed.key());
        let fetched = puller.fetch(addr, key, &chunks(len), &into, &Cancel::new(), arrived);
        assert_eq!(fetched.unwrap(), len as u64);
        assert_eq!(wrong, [1]);
        assert_eq!(into.digest(0..MIB).unwrap(), xxh3_64(&expected[..MIB]));
        let damaged = into.digest(MIB..2 * MIB).unwrap();
        assert_ne!(damaged, xxh3_64(&expected[MIB..2 * MIB]));
    }
}

#[test]
fn a_cancelled_fetch_is_answered_when_the_device_is_through_with_its_buffer() {
    let driver = Driver::new();
    let (source, puller) = (transport(LONG), transport(LONG));
    let staging = Staging::open(0, 8 * MIB).unwrap();
    let exposed = source
        .expose(filled(Buffer::new(8 * MIB).unwrap(), 5))
        .unwrap();
    let into = Buffer::on_device(&staging, 8 * MIB).unwrap();
    let cancel = Cancel::new();
    driver.fake.set(Knob::Hold, 1);
    std::thread::scope(|scope| {
        let fetch = scope.spawn(|| {
            let (addr, key) = (source.addr(), exposed.key());
            puller.fetch(addr, key, &chunks(8 * MIB), &into, &cancel, |_| ())
        });
        driver.wait_for_held_copies();
        cancel.cancel();
        // The device still writes: nothing may be answered, whatever the time.
        std::thread::sleep(STALL);
        assert!(!fetch.is_finished());
        let busy = into.write_at(0, &[1]);
        assert!(matches!(busy, Err(BufferError::Busy { .. })), "{busy:?}");
        let copied = driver.fake.count(Count::BytesUp);
        driver.fake.set(Knob::Hold, 0);
        let error = fetch.join().unwrap().unwrap_err();
        assert!(matches!(error, FetchError::Cancelled), "{error}");
        // What the device had not begun is not copied any more.
        let after = driver.fake.count(Count::BytesUp) - copied;
        assert!(after < 8 * MIB as u64, "{after}");
    });
    into.write_at(0, &vec![9; 8 * MIB]).unwrap();
    assert_eq!(
        fetch_all(&puller, &source, &exposed, &into).unwrap(),
        8 * MIB as u64
    );
    assert!(holds(&into, 5));
    assert_eq!(puller.stats().errors, 0);
}

#[test]
fn a_device_that_takes_its_time_makes_no_source_a_stalled_one() {
    let driver = Driver::new();
    let (source, puller) = (transport(LONG), transport(STALL));
    let staging = Staging::open(0, SMALLEST_STAGING).unwrap();
    let exposed = source
        .expose(filled(Buffer::new(4 * MIB).unwrap(), 5))
        .unwrap();
    let into = Buffer::on_device(&staging, 4 * MIB).unwrap();
    driver.fake.set(Knob::Hold, 1);
    std::thread::scope(|scope| {
        let fetch = scope.spawn(|| fetch_all(&puller, &source, &exposed, &into));
        driver.wait_for_held_copies();
        std::thread::sleep(3 * STALL);
        assert!(!fetch.is_finished());
        driver.fake.set(Knob::Hold, 0);
        assert_eq!(fetch.join().unwrap().unwrap(), 4 * MIB as u64);
    });
    assert!(holds(&into, 5));
}

#[test]
fn a_source_whose_device_takes_its_time_says_so_and_is_no_stalled_one() {
    let driver = Driver::new();
    // The same for all members.
    let (source, puller) = (transport(STALL), transport(STALL));
    let staging = Staging::open(0, SMALLEST_STAGING).unwrap();
    let from = filled(Buffer::on_device(&staging, 4 * MIB).unwrap(), 5);
    let exposed = source.expose(from).unwrap();
    let into = Buffer::new(4 * MIB).unwrap();
    driver.fake.set(Knob::Hold, 1);
    std::thread::scope(|scope| {
        let fetch = scope.spawn(|| fetch_all(&puller, &source, &exposed, &into));
        driver.wait_for_held_copies();
        std::thread::sleep(3 * STALL);
        assert!(!fetch.is_finished(), "{:?}", fetch.join());
        driver.fake.set(Knob::Hold, 0);
        assert_eq!(fetch.join().unwrap().unwrap(), 4 * MIB as u64);
    });
    assert!(holds(&into, 5));
}

#[test]
fn an_error_of_the_pullers_device_fails_its_fetch_and_blames_nobody() {
    let driver = Driver::new();
    let (source, puller) = (transport(LONG), transport(LONG));
    let staging = Staging::open(0, SMALLEST_STAGING + 3 * MIB).unwrap();
    let exposed = source
        .expose(filled(Buffer::new(4 * MIB).unwrap(), 7))
        .unwrap();
    let into = Buffer::on_device(&staging, 4 * MIB).unwrap();
    for knob in [Knob::FailSync, Knob::FailCopy] {
        driver.fake.set(knob, 2);
        let error = fetch_all(&puller, &source, &exposed, &into).unwrap_err();
        let device = matches!(error, FetchError::Buffer(BufferError::Device(_)));
        assert!(device, "{error}");
        assert!(
            error.to_string().starts_with("copying to the device: "),
            "{error}"
        );
        driver.fake.set(knob, 0);
        assert_eq!(
            fetch_all(&puller, &source, &exposed, &into).unwrap(),
            4 * MIB as u64
        );
        assert!(holds(&into, 7));
    }
    assert_eq!(puller.stats().endpoints_open, 1, "the link stayed");
}

#[test]
fn an_error_of_the_sources_device_refuses_the_read_and_the_next_one_works() {
    let driver = Driver::new();
    let (source, puller) = (transport(LONG), transport(LONG));
    let staging = Staging::open(0, SMALLEST_STAGING).unwrap();
    let from = filled(Buffer::on_device(&staging, 4 * MIB).unwrap(), 7);
    let exposed = source.expose(from).unwrap();
    let into = Buffer::new(4 * MIB).unwrap();
    driver.fake.set(Knob::FailSync, 1);
    let error = fetch_all(&puller, &source, &exposed, &into).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("refused the read: its device failed"),
        "{error}"
    );
    assert_eq!(source.stats().errors, 1);
    assert_eq!(
        fetch_all(&puller, &source, &exposed, &into).unwrap(),
        4 * MIB as u64
    );
    assert!(holds(&into, 7));
}

#[test]
fn whoever_withdraws_a_devices_region_waits_for_the_copies_out_of_it() {
    let driver = Driver::new();
    let (source, puller) = (transport(LONG), transport(LONG));
    let staging = Staging::open(0, SMALLEST_STAGING).unwrap();
    let from = filled(Buffer::on_device(&staging, 4 * MIB).unwrap(), 7);
    let exposed = source.expose(from).unwrap();
    let key = *exposed.key();
    let into = Buffer::new(4 * MIB).unwrap();
    driver.fake.set(Knob::Hold, 1);
    std::thread::scope(|scope| {
        let fetch = scope.spawn(|| {
            let cancel = Cancel::new();
            puller.fetch(
                source.addr(),
                &key,
                &chunks(4 * MIB),
                &into,
                &cancel,
                |_| (),
            )
        });
        driver.wait_for_held_copies();
        let (done, withdrawn) = channel();
        scope.spawn(move || {
            exposed.withdraw();
            done.send(()).unwrap();
        });
        assert!(
            withdrawn.recv_timeout(STALL).is_err(),
            "the device still reads"
        );
        driver.fake.set(Knob::Hold, 0);
        withdrawn.recv_timeout(LONG).unwrap();
        let error = fetch.join().unwrap().unwrap_err();
        assert!(matches!(error, FetchError::Refused { .. }), "{error}");
    });
}

/// Stopped in mid-pull: with more asked for than the kernel's buffers take.
fn stopped_reader(source: &Transport, exposed: &Exposed) -> Child {
    let reader = start_pullers(source.addr(), exposed.key(), 4);
    kill_process(Pid::from_child(&reader), Signal::STOP).unwrap();
    reader
}

#[test]
fn a_stopped_puller_keeps_no_blocks_that_others_need() {
    let _driver = Driver::new();
    let (source, puller) = (transport(STALL), transport(STALL));
    let staging = Staging::open(0, SMALLEST_STAGING + 2 * MIB).unwrap();
    let len = 24 * MIB;
    let from = filled(Buffer::on_device(&staging, len).unwrap(), 3);
    let exposed = source.expose(from).unwrap();
    let mut stopped: Vec<Child> = (0..2).map(|_| stopped_reader(&source, &exposed)).collect();
    let into = Buffer::new(len).unwrap();
    let began = Instant::now();
    let fetched = fetch_all(&puller, &source, &exposed, &into);
    for reader in &mut stopped {
        reader.kill().unwrap();
        reader.wait().unwrap();
    }
    assert_eq!(fetched.unwrap(), len as u64);
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    assert!(holds(&into, 3));
}

#[test]
fn a_fetch_whose_source_died_is_answered_when_the_device_is_through_with_its_buffer() {
    let driver = Driver::new();
    let (source, puller) = (transport(LONG), transport(LONG));
    let staging = Staging::open(0, SMALLEST_STAGING).unwrap();
    let plain = filled(Buffer::new(4 * MIB).unwrap(), 5);
    let exposed = source.expose(plain).unwrap();
    let into = Buffer::on_device(&staging, 4 * MIB).unwrap();
    driver.fake.set(Knob::Hold, 1);
    let (addr, key) = (source.addr(), *exposed.key());
    std::thread::scope(|scope| {
        let fetch = scope.spawn(|| {
            let (parts, cancel) = (whole(4 * MIB), Cancel::new());
            puller.fetch(addr, &key, &parts, &into, &cancel, |_| ())
        });
        driver.wait_for_held_copies();
        drop((exposed, source));
        std::thread::sleep(STALL);
        assert!(!fetch.is_finished());
        driver.fake.set(Knob::Hold, 0);
        assert!(fetch.join().unwrap().is_err());
    });
    assert!(into.write_at(0, &[1]).is_ok());
}

#[test]
fn a_transport_stops_though_a_device_does_not_answer() {
    let driver = Driver::new();
    let (source, puller) = (transport(LONG), transport(LONG));
    let staging = Staging::open(0, SMALLEST_STAGING).unwrap();
    let from = filled(Buffer::on_device(&staging, MIB / 2).unwrap(), 5);
    let exposed = source.expose(from).unwrap();
    let into = Buffer::new(MIB / 2).unwrap();
    driver.fake.set(Knob::Hold, 1);
    let (addr, key) = (source.addr(), *exposed.key());
    std::thread::scope(|scope| {
        let fetch = scope.spawn(|| {
            let (parts, cancel) = (whole(MIB / 2), Cancel::new());
            puller.fetch(addr, &key, &parts, &into, &cancel, |_| ())
        });
        driver.wait_for_held_copies();
        let began = Instant::now();
        drop((exposed, source));
        // One read, and nobody who waits: nothing but the limit of stopping wakes it.
        assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
        assert!(fetch.join().unwrap().is_err());
    });
}

#[test]
fn what_lends_references_is_refused_and_what_copies_is_not() {
    let _driver = Driver::new();
    let staging = Staging::open(0, SMALLEST_STAGING).unwrap();
    let device = Buffer::on_device(&staging, 2 * MIB + 5).unwrap();
    let refused = Err(BufferError::OnDevice);
    assert_eq!(device.with_bytes(|_| ()), refused);
    assert_eq!(device.with_bytes_mut(|_| ()), refused);
    assert_eq!(device.as_ptr().map(drop), refused);
    let host = filled(Buffer::new(2 * MIB + 5).unwrap(), 1);
    let range = 7..MIB + 9;
    let digest = host.copy_to(range.clone(), &device).unwrap();
    let expected = &pattern(1, 2 * MIB + 5)[range.clone()];
    assert_eq!(digest, xxh3_64(expected));
    assert_eq!(device.digest(range.clone()).unwrap(), digest);
    let back = Buffer::new(2 * MIB + 5).unwrap();
    assert_eq!(device.copy_to(range.clone(), &back).unwrap(), digest);
    assert!(
        back.with_range(range.clone(), |bytes| bytes == expected)
            .unwrap()
    );
    let beside = Buffer::on_device(&staging, 2 * MIB + 5).unwrap();
    assert_eq!(device.copy_to(range.clone(), &beside).unwrap(), digest);
    assert_eq!(beside.digest(range).unwrap(), digest);
    for (offset, len) in [(2 * MIB + 5, 1), (usize::MAX, 2)] {
        let beyond = device.write_at(offset, &vec![0; len]);
        assert!(
            matches!(beyond, Err(BufferError::Bounds { .. })),
            "{beyond:?}"
        );
    }
    assert!(matches!(
        Buffer::on_device(&staging, 0),
        Err(BufferError::BadLength { .. })
    ));
    let lent = device.lend().unwrap();
    let busy = device.write_at(0, &[1]);
    assert!(matches!(busy, Err(BufferError::Busy { .. })), "{busy:?}");
    drop(lent);
    device.write_at(0, &[1]).unwrap();
}
