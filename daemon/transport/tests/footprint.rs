//! What a transport costs when it does nothing, and leaves behind when it is gone. A process of
//! its own with a single test, because it counts the process's threads and descriptors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use robust_transport::{Buffer, Config, Part, Transport};

fn entries(path: &str) -> usize {
    std::fs::read_dir(path).unwrap().count()
}

/// Processor time of this process in clock ticks (1/100 s).
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
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
    b.fetch(a.addr(), exposed.key(), &parts, &into, |_| ())
        .unwrap();
    b.notify(a.addr(), b"x").unwrap();
    a.recv_timeout(Duration::from_secs(5)).unwrap();
}

fn start() -> Transport {
    Transport::start(Config::default()).unwrap()
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

    let (a, b) = (start(), start());
    a.notify(b.addr(), b"connected").unwrap();
    b.recv_timeout(Duration::from_secs(5)).unwrap();
    let ticks = cpu_ticks();
    // The measured interval itself, not a wait for something.
    std::thread::sleep(Duration::from_secs(2));
    let used = cpu_ticks() - ticks;
    assert!(
        used < 10,
        "two idle connected transports used {used} of 200 ticks"
    );
}
