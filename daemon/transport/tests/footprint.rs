//! What a transport costs when it does nothing, and leaves behind when it is gone. A process of
//! its own with a single test, because it counts the process's threads and descriptors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::time::{Duration, Instant};

use robust_transport::{Buffer, Cancel, JobToken, Part, Transport};

fn entries(path: &str) -> usize {
    std::fs::read_dir(path).unwrap().count()
}

/// Processor time of all threads of this process.
fn cpu_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let nanos = threads.map(|thread| {
        let text = std::fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap();
        let first = text.split_whitespace().next().unwrap().to_owned();
        first.parse::<u64>().unwrap()
    });
    Duration::from_nanos(nanos.sum())
}

fn use_a_pair() {
    let (a, b) = (start(), start());
    let exposed = a.expose(Buffer::new(1 << 20).unwrap()).unwrap();
    let into = Buffer::new(1 << 20).unwrap();
    let parts = [Part {
        src: 0,
        dst: 0,
        len: 1 << 20,
    }];
    b.fetch(
        a.addr(),
        exposed.key(),
        &parts,
        &into,
        &Cancel::new(),
        |_| (),
    )
    .unwrap();
    b.notify(a.addr(), b"x").unwrap();
    a.recv_timeout(Duration::from_secs(5)).unwrap();
}

fn start() -> Transport {
    Transport::start(support::config(JobToken::new(b"footprint"))).unwrap()
}

#[test]
fn an_idle_transport_costs_nothing_and_a_stopped_one_leaves_nothing() {
    // UCX keeps some things per process from the first use on.
    use_a_pair();
    let before = (entries("/proc/self/task"), entries("/proc/self/fd"));
    for _ in 0..10 {
        use_a_pair();
    }
    let after = (entries("/proc/self/task"), entries("/proc/self/fd"));
    assert_eq!(
        before, after,
        "threads and descriptors before and after 20 transports"
    );

    // Eight peers, each with a link to this one and one from it: their transports are in this
    // process too, so their cost counts as well.
    let (hub, peers): (Transport, Vec<Transport>) = (start(), (0..8).map(|_| start()).collect());
    for peer in &peers {
        hub.notify(peer.addr(), b"connected").unwrap();
        peer.recv_timeout(Duration::from_secs(5)).unwrap();
        peer.notify(hub.addr(), b"connected").unwrap();
        hub.recv_timeout(Duration::from_secs(5)).unwrap();
    }
    assert_eq!(hub.stats().endpoints_open, 16);
    let (since, before) = (Instant::now(), cpu_time());
    // The measured interval itself, not a wait for something.
    std::thread::sleep(Duration::from_secs(3));
    let share = (cpu_time() - before).as_secs_f64() / since.elapsed().as_secs_f64();
    println!(
        "nine idle transports with 16 links: {:.3}% of a core",
        share * 100.0
    );
    assert!(share < 0.01, "{:.2}% of a core", share * 100.0);
}
