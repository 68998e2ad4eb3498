//! What lies in shared memory, and what becomes of it when its owner or its reader ends.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use robust_transport::{Buffer, Cancel, Exposed, FetchError, Transport};
use support::{holds, pattern, transport, whole};

const LEN: usize = 3 << 20;

fn pair() -> (Transport, Transport) {
    let stall = Duration::from_secs(2);
    (transport(stall), transport(stall))
}

fn fetch(
    from: &Transport,
    region: &Exposed,
    by: &Transport,
    into: &Arc<Buffer>,
) -> Result<u64, FetchError> {
    let parts = whole(into.len());
    by.fetch(
        from.addr(),
        region.key(),
        &parts,
        into,
        &Cancel::new(),
        |_| (),
    )
}

/// As a shim's, whose engine maps the file by its path.
#[test]
fn what_lies_in_a_file_is_fetched_from_where_it_begins_there() {
    let (source, puller) = pair();
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    let buffer = Buffer::in_file(&file, 8192, LEN).unwrap();
    buffer.write_at(0, &pattern(5, LEN)).unwrap();
    let region = source.expose(buffer).unwrap();
    let into = Buffer::new(LEN).unwrap();
    assert_eq!(fetch(&source, &region, &puller, &into).unwrap(), LEN as u64);
    assert!(holds(&into, 5));
}

/// Mapped, it would end the reader by SIGBUS.
#[test]
fn a_file_that_was_cut_short_is_an_error_to_its_reader_and_no_more() {
    let (source, puller) = pair();
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    let region = source
        .expose(Buffer::in_file(&file, 0, LEN).unwrap())
        .unwrap();
    let into = Buffer::new(LEN).unwrap();
    fetch(&source, &region, &puller, &into).unwrap();
    file.set_len(4096).unwrap();
    let error = fetch(&source, &region, &puller, &into).unwrap_err();
    assert!(matches!(error, FetchError::Breach { .. }), "{error}");
    let whole = source.expose(Buffer::new(LEN).unwrap()).unwrap();
    fetch(&source, &whole, &puller, &into).unwrap();
}

/// A reader keeps a few memories of a source mapped; with more of them it forgets the oldest, as does the
/// source.
#[test]
fn more_memories_than_a_reader_keeps_are_fetched_in_any_order_again_and_again() {
    let (source, puller) = pair();
    let regions: Vec<Exposed> = (0..7)
        .map(|seed| {
            let buffer = Buffer::new(LEN).unwrap();
            buffer.write_at(0, &pattern(seed, LEN)).unwrap();
            source.expose(buffer).unwrap()
        })
        .collect();
    let into = Buffer::new(LEN).unwrap();
    for seed in [0, 1, 2, 3, 4, 0, 5, 6, 1, 6, 5, 4, 3, 2, 1, 0] {
        fetch(&source, &regions[seed], &puller, &into).unwrap();
        assert!(holds(&into, seed as u64), "{seed}");
    }
}

#[test]
fn memory_that_its_owner_gave_up_is_not_kept_by_a_reader_that_goes_on() {
    let (source, puller) = pair();
    let into = Buffer::new(LEN).unwrap();
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let of_peers = |line: &&str| line.contains("robust-buffer") && line.contains("r--s");
        maps.lines().filter(of_peers).count()
    };
    for _ in 0..9 {
        let region = source.expose(Buffer::new(LEN).unwrap()).unwrap();
        fetch(&source, &region, &puller, &into).unwrap();
    }
    assert_eq!(mapped(), 1, "the last one, until something else is fetched");
}

#[test]
fn a_transport_is_named_in_its_folder_as_long_as_it_is_there_and_no_port_is_open() {
    let (source, puller) = pair();
    assert_eq!(source.addr().net(), None);
    let address = source.addr();
    puller.notify(address, b"there").unwrap();
    drop(source);
    // The first one may meet the connection that ended.
    puller.notify(address, b"gone").unwrap_err();
    let error = puller.notify(address, b"gone").unwrap_err().to_string();
    assert!(error.contains("no road leads to it"), "{error}");
}
