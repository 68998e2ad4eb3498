//! Buffers in a real device's memory: `make test-device` runs this where there is one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use robust_transport::{Buffer, Cancel, SMALLEST_STAGING, Staging};
use support::{chunks, pattern, transport};

const MIB: usize = 1 << 20;
const LONG: Duration = Duration::from_secs(20);

fn filled(buffer: Arc<Buffer>, seed: u64) -> Arc<Buffer> {
    buffer.write_at(0, &pattern(seed, buffer.len())).unwrap();
    buffer
}

#[test]
#[ignore = "needs an NVIDIA device"]
fn bytes_are_the_same_whichever_side_is_on_a_real_device() {
    let (source, puller) = (transport(LONG), transport(LONG));
    let staging = Staging::open(0, 64 * MIB).unwrap();
    let other = Staging::open(0, SMALLEST_STAGING).unwrap();
    let len = 256 * MIB + 12_345;
    let host = || Buffer::new(len).unwrap();
    let on = |staging| Buffer::on_device(staging, len).unwrap();
    let pairs = [
        ("host to host", host(), host()),
        ("host to device", host(), on(&staging)),
        ("device to host", on(&staging), host()),
        ("device to device", on(&staging), on(&staging)),
        ("through the least staging", on(&staging), on(&other)),
    ];
    for (seed, (way, from, into)) in (3..).zip(pairs) {
        let exposed = source.expose(filled(from, seed)).unwrap();
        let parts = chunks(len);
        let (addr, key, cancel) = (source.addr(), exposed.key(), Cancel::new());
        // Pages of host memory are paid for by the first of the two.
        for round in 0..2 {
            let start = Instant::now();
            let fetched = puller.fetch(addr, key, &parts, &into, &cancel, |_| ());
            assert_eq!(fetched.unwrap(), len as u64);
            let gb_s = len as f64 / 1e9 / start.elapsed().as_secs_f64();
            println!("{way}, round {round}: {gb_s:.2} GB/s");
        }
        let mut bytes = vec![0; len];
        into.read_at(0, &mut bytes).unwrap();
        assert!(bytes == pattern(seed, len), "{way}");
    }
    assert_eq!(puller.stats().errors + source.stats().errors, 0);
}
