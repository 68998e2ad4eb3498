//! Peers that keep no rule: each gets a closed link or nothing at all, others are served on, and
//! no byte is written that was not asked for (T-9).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod callee;
mod caller;
mod protocol;
mod raw;
mod sockets;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use robust_transport::{Buffer, Cancel, Config, Exposed, JobToken, Transport};
use support::{holds, pattern, whole};

const SECRET: &[u8] = b"hostile tests";
const LIMIT: Duration = Duration::from_secs(10);
const LEN: usize = 3 << 20;

fn job() -> JobToken {
    JobToken::new(SECRET)
}

fn start(token: JobToken, timeout: Duration) -> Transport {
    Transport::start(Config {
        stall_timeout: timeout,
        connect_timeout: timeout,
        ..Config::new(token)
    })
    .unwrap()
}

/// A transport under attack, with something to guard.
struct Victim {
    transport: Transport,
    exposed: Exposed,
    friend: Transport,
}

impl Victim {
    fn new(connect_timeout: Duration) -> Victim {
        let transport = start(job(), connect_timeout);
        let buffer = Buffer::new(LEN).unwrap();
        buffer.write_at(0, &pattern(3, LEN)).unwrap();
        let exposed = transport.expose(buffer).unwrap();
        let friend = start(job(), LIMIT);
        Victim {
            transport,
            exposed,
            friend,
        }
    }

    /// Serves its friend, has heard nobody else, and its bytes are what they were.
    fn assert_unharmed(&self) {
        let into = Buffer::new(LEN).unwrap();
        let (addr, key) = (self.transport.addr(), self.exposed.key());
        self.friend
            .fetch(addr, key, &whole(LEN), &into, &Cancel::new(), |_| ())
            .unwrap();
        assert!(holds(&into, 3));
        self.friend.notify(addr, b"friend").unwrap();
        assert_eq!(self.transport.recv_timeout(LIMIT).unwrap(), b"friend");
        assert_eq!(self.transport.try_recv(), None);
        assert!(holds(self.exposed.buffer(), 3));
    }
}

/// A buffer of which only some bytes may ever be written.
struct Guarded(Arc<Buffer>);

impl Guarded {
    fn new() -> Guarded {
        let buffer = Buffer::new(LEN).unwrap();
        buffer.with_bytes_mut(|bytes| bytes.fill(0xee)).unwrap();
        Guarded(buffer)
    }

    /// Nothing but `allowed` differs.
    fn assert_untouched_but(&self, allowed: std::ops::Range<usize>) {
        let outside = |bytes: &[u8]| {
            let (before, after) = (&bytes[..allowed.start], &bytes[allowed.end..]);
            before.iter().chain(after).all(|byte| *byte == 0xee)
        };
        assert!(self.0.with_bytes(outside).unwrap());
    }
}

/// Random messages: kind, header, payload, flags.
type Message = (u32, Vec<u8>, Vec<u8>, u32);

fn garbage() -> impl Strategy<Value = Vec<Message>> {
    let numbers = proptest::collection::vec(prop_oneof![0..40u64, any::<u64>()], 0..7);
    let words = numbers.prop_map(|words| words.iter().flat_map(|w| w.to_le_bytes()).collect());
    let bytes = proptest::collection::vec(any::<u8>(), 0..90);
    let long = (0..200_000usize, any::<u8>()).prop_map(|(len, byte)| vec![byte; len]);
    let hello =
        proptest::collection::vec(any::<u8>(), 92).prop_map(|rest| [&b"RTP7"[..], &rest].concat());
    let payload = prop_oneof![4 => words, 4 => bytes, 1 => long, 1 => hello];
    let header = proptest::collection::vec(any::<u8>(), 0..24);
    let flags = prop_oneof![
        6 => Just(raw::EAGER | raw::REPLY),
        2 => Just(raw::EAGER),
        1 => Just(raw::RENDEZVOUS),
        1 => Just(raw::RENDEZVOUS | raw::REPLY),
    ];
    let kinds = prop_oneof![9 => raw::KINDS, 1 => proptest::sample::select(&raw::FAR_KINDS[..])];
    proptest::collection::vec((kinds, header, payload, flags), 1..12)
}

#[test]
#[ignore = "body of the peer process that other tests start"]
fn peer_that_serves() {
    support::serve_until_stdin_closes();
}
