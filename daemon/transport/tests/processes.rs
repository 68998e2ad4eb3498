//! Transports in several processes, some of which are killed or stopped.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};

use robust_transport::{Buffer, Cancel, Exposed, FetchError, Part, Transport};
use rustix::process::{Pid, Signal, kill_process};
use support::{
    Peer, Tested, chunks, holds, pattern, start_notifier, start_puller, start_pullers, tested,
    transport, whole,
};

const MIB: usize = 1 << 20;
const STALL: Duration = Duration::from_millis(700);

#[test]
#[ignore = "body of the peer process that other tests start"]
fn peer_that_serves() {
    support::serve_until_stdin_closes();
}

#[test]
#[ignore = "body of the peer process that other tests start"]
fn peer_that_notifies() {
    support::notify_in_order();
}

#[test]
#[ignore = "body of the peer process that other tests start"]
fn peer_that_pulls() {
    support::pull_for_ever();
}

#[test]
fn a_fetch_from_another_process_delivers_identical_bytes() {
    let len = 40 * MIB + 12_345;
    let peer = Peer::serve(7, len);
    let transport = transport(STALL);
    let into = Buffer::new(len).unwrap();
    let mut seen = Vec::new();
    let cancel = Cancel::new();
    let parts = chunks(len);
    let expected = support::pattern(7, len);
    let got = transport
        .fetch(peer.addr, &peer.key, &parts, &into, &cancel, |arrived| {
            let Part { src, len, .. } = parts[arrived.part];
            assert!(arrived.bytes().unwrap() == &expected[src as usize..(src + len) as usize]);
            seen.push(arrived.part);
        })
        .unwrap();
    assert_eq!(got, len as u64);
    assert!(holds(&into, 7));
    assert_eq!(cancel.fetched(), len as u64);
    seen.sort_unstable();
    assert!(
        seen.into_iter().eq(0..parts.len()),
        "each part is told once"
    );
    assert_eq!(transport.stats().bytes_fetched, len as u64);
    assert_eq!(transport.stats().errors, 0);
}

#[test]
fn parts_land_where_they_are_asked_to() {
    let peer = Peer::serve(3, 8 * MIB);
    let source = support::pattern(3, 8 * MIB);
    let transport = transport(STALL);
    let into = Buffer::new(4 * MIB).unwrap();
    let parts = [
        Part {
            src: 5_000_001,
            dst: 17,
            len: 1_500_003,
        },
        Part {
            src: 0,
            dst: 0,
            len: 0,
        },
        Part {
            src: 1,
            dst: 3_000_000,
            len: 1,
        },
    ];
    let got = transport
        .fetch(peer.addr, &peer.key, &parts, &into, &Cancel::new(), |_| ())
        .unwrap();
    assert_eq!(got, 1_500_004);
    let expected = [&[0; 17], &source[5_000_001..6_500_004], &[0; 50]].concat();
    let mut bytes = vec![0; expected.len()];
    into.read_at(0, &mut bytes).unwrap();
    assert!(bytes == expected);
    let mut byte = [0];
    into.read_at(3_000_000, &mut byte).unwrap();
    assert_eq!(byte[0], source[1]);
}

#[test]
fn after_a_peer_was_killed_the_same_transport_fetches_from_another() {
    let len = 256 * MIB;
    let peer = Peer::serve(1, len);
    let other = Peer::serve(2, 16 * MIB);
    let transport = transport(Duration::from_secs(5));
    let into = Buffer::new(len).unwrap();
    let started = Instant::now();
    let mut killed = None;
    let cancel = Cancel::new();
    let parts = chunks(len);
    let result = transport.fetch(peer.addr, &peer.key, &parts, &into, &cancel, |_| {
        if cancel.fetched() > 20 * MIB as u64 && killed.is_none() {
            peer.signal(Signal::KILL);
            killed = Some(Instant::now());
        }
    });
    let error = result.unwrap_err();
    let killed = killed.unwrap_or(started);
    assert!(matches!(error, FetchError::Peer { .. }), "{error}");
    assert!(
        killed.elapsed() < Duration::from_secs(4),
        "told after {:?}",
        killed.elapsed()
    );
    // Answered means drained: the buffer is the caller's again.
    into.with_bytes_mut(|bytes| bytes[0] = 1).unwrap();

    let into = Buffer::new(16 * MIB).unwrap();
    transport
        .fetch(
            other.addr,
            &other.key,
            &whole(16 * MIB),
            &into,
            &Cancel::new(),
            |_| (),
        )
        .unwrap();
    assert!(holds(&into, 2));
    // The dead peer's endpoint is not cached: connecting to it is refused.
    let again = transport
        .fetch(
            peer.addr,
            &peer.key,
            &whole(1),
            &into,
            &Cancel::new(),
            |_| (),
        )
        .unwrap_err();
    assert!(matches!(again, FetchError::Connect { .. }), "{again}");
}

#[test]
fn a_stopped_peer_is_a_stall_and_others_go_on() {
    let mut peer = Peer::serve(1, 256 * MIB);
    let other = Peer::serve(2, 16 * MIB);
    let transport = transport(STALL);
    let into = Buffer::new(256 * MIB).unwrap();
    let mut stopped = None;
    let cancel = Cancel::new();
    let parts = chunks(256 * MIB);
    let result = transport.fetch(peer.addr, &peer.key, &parts, &into, &cancel, |_| {
        stopped.get_or_insert_with(|| {
            peer.signal(Signal::STOP);
            Instant::now()
        });
    });
    let waited = stopped.unwrap().elapsed();
    match result.unwrap_err() {
        FetchError::Stalled { after, total, .. } => {
            assert_eq!((after, total), (STALL, 256 * MIB as u64));
        }
        error => panic!("{error}"),
    }
    assert!(
        waited < STALL + Duration::from_millis(1500),
        "told after {waited:?}"
    );
    into.with_bytes_mut(|bytes| bytes.fill(0)).unwrap();
    // Nothing else happens that would let it end what the stall left behind.
    let until = Instant::now() + Duration::from_secs(20);
    while transport.stats().endpoints_open > 0 {
        assert!(Instant::now() < until, "{:?}", transport.stats());
        std::thread::sleep(Duration::from_millis(5));
    }

    // Connecting to a stopped peer ends as well.
    let error = transport
        .fetch(
            peer.addr,
            &peer.key,
            &whole(1),
            &into,
            &Cancel::new(),
            |_| (),
        )
        .unwrap_err();
    assert!(matches!(error, FetchError::Connect { .. }), "{error}");
    assert!(transport.notify(peer.addr, b"hello?").is_err());

    let small = Buffer::new(16 * MIB).unwrap();
    transport
        .fetch(
            other.addr,
            &other.key,
            &whole(16 * MIB),
            &small,
            &Cancel::new(),
            |_| (),
        )
        .unwrap();
    assert!(holds(&small, 2));

    // Nothing of the failed fetch comes late, and the peer is of use again once it goes on.
    peer.signal(Signal::CONT);
    transport
        .fetch(
            peer.addr,
            &peer.key,
            &whole(16 * MIB),
            &small,
            &Cancel::new(),
            |_| (),
        )
        .unwrap();
    small
        .with_bytes(|bytes| assert!(bytes == support::pattern(1, 16 * MIB)))
        .unwrap();
    into.with_bytes(|bytes| assert!(bytes.iter().all(|byte| *byte == 0)))
        .unwrap();
    assert!(peer.is_alive());
}

#[test]
fn several_threads_fetch_from_several_peers_at_once() {
    let len = 24 * MIB;
    let peers: Vec<Peer> = (0..3).map(|seed| Peer::serve(seed, len)).collect();
    let transport = transport(Duration::from_secs(5));
    std::thread::scope(|scope| {
        for round in 0..6 {
            let (transport, peer) = (&transport, &peers[round % 3]);
            scope.spawn(move || {
                let into = Buffer::new(len).unwrap();
                transport
                    .fetch(
                        peer.addr,
                        &peer.key,
                        &whole(len),
                        &into,
                        &Cancel::new(),
                        |_| (),
                    )
                    .unwrap();
                assert!(holds(&into, round as u64 % 3));
            });
        }
    });
    // One for each peer, or two if both fetches from it ran at once.
    assert!((3..=6).contains(&transport.stats().endpoints_open));
}

#[test]
fn two_fetches_fill_one_buffer() {
    let len = 16 * MIB;
    let peer = Peer::serve(9, len);
    let transport = transport(STALL);
    let into = Buffer::new(len).unwrap();
    let half = len as u64 / 2;
    std::thread::scope(|scope| {
        for at in [0, half] {
            let (transport, peer, into) = (&transport, &peer, Arc::clone(&into));
            let parts = [Part {
                src: at,
                dst: at,
                len: half,
            }];
            scope.spawn(move || {
                transport
                    .fetch(peer.addr, &peer.key, &parts, &into, &Cancel::new(), |_| ())
                    .unwrap()
            });
        }
    });
    assert!(holds(&into, 9));
}

#[test]
fn messages_of_one_peer_arrive_in_order() {
    let transport = transport(STALL);
    let mut child = start_notifier(transport.addr(), 2000);
    for n in 0..2000u32 {
        let message = transport
            .recv_timeout(Duration::from_secs(20))
            .expect("a message");
        assert_eq!(message[..4], n.to_le_bytes());
        assert_eq!(message.len(), 4 + (n as usize * 37) % 4000);
        assert!(message[4..].iter().all(|byte| *byte == n as u8));
    }
    assert_eq!(transport.try_recv(), None);
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn disconnecting_fails_what_is_under_way_and_the_next_call_connects_again() {
    let len = 256 * MIB;
    let peer = Peer::serve(4, len);
    let transport = transport(STALL);
    let into = Buffer::new(len).unwrap();
    let mut asked = false;
    let cancel = Cancel::new();
    let result = transport.fetch(peer.addr, &peer.key, &chunks(len), &into, &cancel, |_| {
        if !std::mem::replace(&mut asked, true) {
            transport.disconnect(peer.addr);
        }
    });
    assert!(
        matches!(result, Err(FetchError::Disconnected { .. })),
        "{result:?}"
    );
    transport
        .fetch(
            peer.addr,
            &peer.key,
            &whole(len),
            &into,
            &Cancel::new(),
            |_| (),
        )
        .unwrap();
    assert!(holds(&into, 4));
}

/// With emulated one-sided gets a source was seen to abort inside of UCX after its puller had closed
/// in the middle: sources must survive whatever pullers do.
#[test]
fn a_source_survives_pullers_that_are_killed_stopped_or_disconnect_in_the_middle() {
    let len = 64 * MIB;
    let mut source = Peer::serve(6, len);
    let transport = transport(STALL);
    let into = Buffer::new(len).unwrap();
    for round in 0..8u64 {
        let mut puller = start_puller(source.addr, &source.key);
        let pid = rustix::process::Pid::from_child(&puller);
        // Varies where in its stream the puller is hit; nothing is waited for.
        std::thread::sleep(Duration::from_millis(7 * round));
        if round % 2 == 1 {
            rustix::process::kill_process(pid, Signal::STOP).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
        puller.kill().unwrap();
        puller.wait().unwrap();
        let mut calls = 0;
        let cancel = Cancel::new();
        let result = transport.fetch(
            source.addr,
            &source.key,
            &chunks(len),
            &into,
            &cancel,
            |_| {
                calls += 1;
                if calls == 1 + round {
                    transport.disconnect(source.addr);
                }
            },
        );
        // Through shared memory all may be here before the wish to disconnect is heard.
        let over = tested() == Tested::Shm && result.is_ok();
        assert!(
            over || matches!(result, Err(FetchError::Disconnected { .. })),
            "{result:?}"
        );
        assert!(source.is_alive(), "the source died in round {round}");
    }
    transport
        .fetch(
            source.addr,
            &source.key,
            &whole(len),
            &into,
            &Cancel::new(),
            |_| (),
        )
        .unwrap();
    assert!(holds(&into, 6));
}

/// A reader process that was stopped when some bytes had come: more are on their way to it than the
/// kernel's buffers take.
fn stopped_reader(transport: &Transport, exposed: &Exposed) -> Child {
    let reader = start_pullers(transport.addr(), exposed.key(), 8);
    kill_process(Pid::from_child(&reader), Signal::STOP).unwrap();
    reader
}

#[test]
fn a_stopped_reader_does_not_hold_up_who_withdraws() {
    let transport = transport(Duration::from_secs(2));
    let buffer = Buffer::new(24 << 20).unwrap();
    let exposed = transport.expose(buffer).unwrap();
    let mut reader = stopped_reader(&transport, &exposed);
    let (done, withdrawn) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        exposed.withdraw();
        done.send(()).unwrap();
    });
    let answer = withdrawn.recv_timeout(Duration::from_secs(20));
    reader.kill().unwrap();
    reader.wait().unwrap();
    answer.expect("the withdrawal ends though the reader takes nothing");
}

#[test]
fn whoever_withdraws_a_region_may_write_its_buffer_and_no_reader_gets_a_mixture() {
    // Whether bytes are on their way when the reader stops is chance; as a rule they are.
    let waited = (0..20).any(|_| withdraw_from_a_stopped_reader() >= GOES_ON / 2);
    assert!(waited, "nothing was on its way, twenty times");
}

/// How long the reader stays stopped.
const GOES_ON: Duration = Duration::from_millis(300);

/// How long the withdrawal took.
fn withdraw_from_a_stopped_reader() -> Duration {
    const LEN: usize = 24 << 20;
    let transport = transport(Duration::from_secs(120));
    let buffer = Buffer::new(LEN).unwrap();
    buffer.write_at(0, &pattern(3, LEN)).unwrap();
    let exposed = transport.expose(Arc::clone(&buffer)).unwrap();
    let mut reader = stopped_reader(&transport, &exposed);
    let pid = Pid::from_child(&reader);
    let waker = std::thread::spawn(move || {
        std::thread::sleep(GOES_ON); // what is on its way stays there until then
        kill_process(pid, Signal::CONT).unwrap();
    });
    let began = Instant::now();
    exposed.withdraw();
    let took = began.elapsed();
    buffer.write_at(0, &vec![0xff; LEN]).unwrap();
    waker.join().unwrap();
    let lines = BufReader::new(reader.stdout.take().unwrap()).lines();
    let told: Vec<String> = lines.map(|line| line.unwrap()).collect();
    reader.wait().unwrap();
    assert!(told.iter().any(|line| line.contains("REFUSED")), "{told:?}");
    assert!(!told.iter().any(|line| line.contains("MIXED")), "{told:?}");
    took
}
