//! What one process can check alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::{Duration, Instant};

use proptest::prelude::*;
use robust_transport::{
    Buffer, BufferError, Cancel, Config, FetchError, JobToken, MAX_MESSAGE_BYTES, Part, RegionKey,
    Transport, TransportError,
};

fn config() -> Config {
    support::config(JobToken::new(b"local tests"))
}

fn transport() -> Transport {
    Transport::start(config()).unwrap()
}

#[test]
fn what_is_written_into_a_buffer_in_a_file_is_read_from_the_file() {
    let mut file = tempfile::tempfile().unwrap();
    std::io::Write::write_all(&mut file, &[7; 4096]).unwrap();
    let buffer = Buffer::in_file(&file, 4096, 5000).unwrap();
    buffer.write_at(4990, &[1; 10]).unwrap();
    let mut read = vec![0; 10];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut read, 4096 + 4990).unwrap();
    assert_eq!(read, [1; 10]);
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut read, 0).unwrap();
    assert_eq!(read, [7; 10], "what the file had before it stays");
    for (offset, len) in [(100, 10), (4096, 0)] {
        let refused = Buffer::in_file(&file, offset, len);
        assert!(matches!(refused, Err(BufferError::BadLength { .. })));
    }
}

#[test]
fn two_transports_of_one_process_fetch_and_notify() {
    let (a, b) = (transport(), transport());
    let source = Buffer::new(3_000_000).unwrap();
    source.with_bytes_mut(|bytes| bytes.fill(0xa5)).unwrap();
    let exposed = a.expose(source).unwrap();
    let key = RegionKey::from_bytes(&exposed.key().to_bytes()).unwrap();
    let into = Buffer::new(3_000_000).unwrap();
    let parts = [Part {
        src: 0,
        dst: 0,
        len: 3_000_000,
    }];
    assert_eq!(
        b.fetch(a.addr(), &key, &parts, &into, &Cancel::new(), |_| ())
            .unwrap(),
        3_000_000
    );
    assert!(
        into.with_bytes(|bytes| bytes.iter().all(|byte| *byte == 0xa5))
            .unwrap()
    );
    b.notify(a.addr(), b"done").unwrap();
    assert_eq!(a.recv_timeout(Duration::from_secs(5)).unwrap(), b"done");
    a.notify(b.addr(), b"").unwrap();
    assert_eq!(b.recv_timeout(Duration::from_secs(5)).unwrap(), b"");
    assert_eq!(b.stats().messages_received, 1);
}

#[test]
fn a_transport_can_fetch_from_itself() {
    let a = transport();
    let source = Buffer::new(5000).unwrap();
    source.write_at(10, b"self").unwrap();
    let exposed = a.expose(source).unwrap();
    let into = Buffer::new(5000).unwrap();
    let parts = [Part {
        src: 0,
        dst: 0,
        len: 5000,
    }];
    a.fetch(
        a.addr(),
        exposed.key(),
        &parts,
        &into,
        &Cancel::new(),
        |_| (),
    )
    .unwrap();
    let mut bytes = [0; 4];
    into.read_at(10, &mut bytes).unwrap();
    assert_eq!(&bytes, b"self");
}

#[test]
fn a_part_out_of_bounds_is_refused_before_anything_is_sent() {
    let a = transport();
    let exposed = a.expose(Buffer::new(100).unwrap()).unwrap();
    let into = Buffer::new(50).unwrap();
    for (src, dst, len) in [
        (0, 0, 101),
        (100, 0, 1),
        (0, 50, 1),
        (u64::MAX, 0, 2),
        (0, 0, 51),
    ] {
        let parts = [
            Part {
                src: 0,
                dst: 0,
                len: 1,
            },
            Part { src, dst, len },
        ];
        let error = a
            .fetch(
                a.addr(),
                exposed.key(),
                &parts,
                &into,
                &Cancel::new(),
                |_| (),
            )
            .unwrap_err();
        assert!(
            matches!(error, FetchError::Bounds { part: 1, .. }),
            "{error}"
        );
    }
    assert_eq!(a.stats().endpoints_open, 0);
}

#[test]
fn a_key_of_a_transport_that_is_gone_is_refused_by_its_successor() {
    let (old, new) = (transport(), transport());
    let key = *old.expose(Buffer::new(4096).unwrap()).unwrap().key();
    drop(old);
    let into = Buffer::new(4096).unwrap();
    let parts = [Part {
        src: 0,
        dst: 0,
        len: 4096,
    }];
    let puller = transport();
    let error = puller
        .fetch(new.addr(), &key, &parts, &into, &Cancel::new(), |_| ())
        .unwrap_err();
    assert!(matches!(error, FetchError::StaleKey { .. }), "{error}");
}

#[test]
fn a_withdrawn_region_is_refused() {
    let (a, b) = (transport(), transport());
    let exposed = a.expose(Buffer::new(2 << 20).unwrap()).unwrap();
    let key = *exposed.key();
    drop(exposed);
    let into = Buffer::new(2 << 20).unwrap();
    let parts = [Part {
        src: 0,
        dst: 0,
        len: 2 << 20,
    }];
    let error = b
        .fetch(a.addr(), &key, &parts, &into, &Cancel::new(), |_| ())
        .unwrap_err();
    assert!(matches!(error, FetchError::Refused { .. }), "{error}");
}

#[test]
fn a_region_is_not_found_by_counting_from_another() {
    let (a, b) = (transport(), transport());
    let expose = |_| a.expose(Buffer::new(100).unwrap()).unwrap();
    let exposed: Vec<_> = (0..9).map(expose).collect();
    let (known, into) = (*exposed[4].key(), Buffer::new(100).unwrap());
    let parts = [Part {
        src: 0,
        dst: 0,
        len: 100,
    }];
    let beside =
        (1..50).flat_map(|by| [known.region.wrapping_add(by), known.region.wrapping_sub(by)]);
    for region in beside.chain(0..200) {
        let guessed = RegionKey { region, ..known };
        let error = b
            .fetch(a.addr(), &guessed, &parts, &into, &Cancel::new(), |_| ())
            .unwrap_err();
        assert!(matches!(error, FetchError::Refused { .. }), "{error}");
    }
    b.fetch(a.addr(), &known, &parts, &into, &Cancel::new(), |_| ())
        .unwrap();
}

#[test]
fn a_key_that_claims_more_than_the_region_has_is_refused_by_its_owner() {
    let (a, b) = (transport(), transport());
    let exposed = a.expose(Buffer::new(100).unwrap()).unwrap();
    let into = Buffer::new(5000).unwrap();
    for (src, claimed) in [(0, 5000), (u64::MAX - 50, u64::MAX)] {
        let key = RegionKey {
            len: claimed,
            ..*exposed.key()
        };
        let parts = [Part {
            src,
            dst: 0,
            len: (claimed - src).min(5000),
        }];
        let error = b
            .fetch(a.addr(), &key, &parts, &into, &Cancel::new(), |_| ())
            .unwrap_err();
        assert!(matches!(error, FetchError::Refused { .. }), "{error}");
    }
    b.notify(a.addr(), b"alive").unwrap();
}

#[test]
fn nobody_listens_is_a_connect_error() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let a = transport();
    let error = a.notify(free.into(), b"x").unwrap_err();
    assert!(matches!(error, TransportError::Connect { .. }), "{error}");
    assert_eq!(a.stats().errors, 1);
}

#[test]
fn a_listener_that_is_no_transport_is_a_connect_error() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let config = Config {
        connect_timeout: Duration::from_millis(300),
        ..config()
    };
    let a = Transport::start(config).unwrap();
    let started = Instant::now();
    let error = a
        .notify(silent.local_addr().unwrap().into(), b"x")
        .unwrap_err();
    assert!(matches!(error, TransportError::Connect { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[test]
fn a_message_too_long_is_refused() {
    let a = transport();
    let error = a.notify(a.addr(), &[0; MAX_MESSAGE_BYTES + 1]).unwrap_err();
    assert!(
        matches!(
            error,
            TransportError::MessageTooLong {
                len: 4097,
                max: 4096
            }
        ),
        "{error}"
    );
    a.notify(a.addr(), &[1; MAX_MESSAGE_BYTES]).unwrap();
    assert_eq!(
        a.recv_timeout(Duration::from_secs(5)).unwrap(),
        [1; MAX_MESSAGE_BYTES]
    );
}

#[test]
fn buffers_check_bounds_and_loans() {
    assert!(matches!(Buffer::new(0), Err(BufferError::BadLength { .. })));
    assert!(matches!(
        Buffer::new(usize::MAX),
        Err(BufferError::BadLength { .. })
    ));
    let buffer = Buffer::new(10).unwrap();
    assert_eq!(buffer.len(), 10);
    assert_eq!(buffer.as_ptr().unwrap() as usize % 4096, 0);
    assert!(matches!(
        buffer.write_at(8, &[0; 3]),
        Err(BufferError::Bounds { .. })
    ));
    assert!(matches!(
        buffer.read_at(usize::MAX, &mut [0; 3]),
        Err(BufferError::Bounds { .. })
    ));
    buffer
        .with_bytes(|_| {
            assert!(buffer.with_bytes(|_| ()).is_ok());
            assert!(matches!(
                buffer.write_at(0, &[1]),
                Err(BufferError::Busy { .. })
            ));
            assert!(matches!(
                buffer.with_bytes_mut(|_| ()),
                Err(BufferError::Busy { .. })
            ));
        })
        .unwrap();
    buffer.write_at(0, &[1]).unwrap();
}

#[test]
fn bytes_that_are_written_are_read_by_nobody_and_those_on_their_way_are_not_written() {
    const LEN: usize = 32 << 20;
    let (a, b) = (transport(), transport());
    let (source, into) = (Buffer::new(LEN).unwrap(), Buffer::new(LEN).unwrap());
    let exposed = a.expose(source.clone()).unwrap();
    let parts = [Part {
        src: 0,
        dst: 0,
        len: LEN as u64,
    }];
    let fetch = || {
        b.fetch(
            a.addr(),
            exposed.key(),
            &parts,
            &into,
            &Cancel::new(),
            |_| (),
        )
    };
    let met = source.with_bytes_mut(|_| fetch()).unwrap();
    assert!(matches!(met, Err(FetchError::Refused { .. })), "{met:?}");
    fetch().unwrap();
    // Whoever writes all the time is refused for as long as some of it is on its way, and no longer.
    let (mut refused, mut written) = (0, 0);
    while refused == 0 {
        std::thread::scope(|scope| {
            let fetched = scope.spawn(fetch);
            while !fetched.is_finished() {
                match source.write_at(LEN / 2, &[1]) {
                    Err(BufferError::Busy { .. }) => refused += 1,
                    other => other.map(|()| written += 1).unwrap(),
                }
            }
            fetched.join().unwrap().ok()
        });
    }
    exposed.withdraw();
    source.with_bytes_mut(|bytes| bytes.fill(2)).unwrap();
}

proptest! {
    #[test]
    fn random_bytes_are_no_region_key(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(RegionKey::from_bytes(&bytes).is_err());
    }

    #[test]
    fn a_region_key_survives_its_bytes_and_no_damage(
        owner: u64, region: u64, len: u64, at: usize, flip in 1..=255u8,
    ) {
        let key = RegionKey { owner, region, len };
        let mut bytes = key.to_bytes();
        prop_assert_eq!(RegionKey::from_bytes(&bytes).unwrap(), key);
        let at = at % bytes.len();
        prop_assert!(RegionKey::from_bytes(&bytes[..at]).is_err());
        bytes[at] ^= flip;
        prop_assert!(RegionKey::from_bytes(&bytes).is_err());
    }
}
