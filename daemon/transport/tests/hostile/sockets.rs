//! Whoever speaks no UCX at all.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::Duration;

use robust_transport::{Buffer, Cancel};

use super::support::{Peer, holds, pattern, transport, whole};
use super::{LEN, LIMIT};

/// Every TCP port this process listens on: the transport's own and UCX's for its connections.
fn listening(pid: u32) -> BTreeSet<u16> {
    let folder = format!("/proc/{pid}/fd");
    let links = std::fs::read_dir(folder).unwrap().flatten();
    let sockets: BTreeSet<String> = links
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter_map(|link| {
            let text = link.to_string_lossy().into_owned();
            Some(text.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())
        })
        .collect();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ports = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // 0A: listening.
        let listens = fields[3] == "0A" && sockets.contains(fields[9]);
        listens.then(|| u16::from_str_radix(fields[1].split(':').nth(1)?, 16).ok())?
    });
    ports.collect()
}

#[test]
fn bytes_that_are_no_ucx_leave_a_source_serving() {
    let mut source = Peer::serve(3, LEN);
    let ports = listening(source.pid());
    assert!(
        ports.contains(&source.addr.net().unwrap().port()),
        "{ports:?}"
    );
    let mut held = Vec::new();
    for port in ports {
        for (at, len) in [0, 1, 7, 8, 16, 100, 5000, 300_000].into_iter().enumerate() {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            let bytes = pattern(at as u64 + u64::from(port), len);
            // It may close before it has read all.
            let _ = stream.write_all(&bytes);
            if at % 2 == 0 {
                let _ = stream.shutdown(Shutdown::Write);
                stream
                    .set_read_timeout(Some(Duration::from_millis(50)))
                    .unwrap();
                let _ = stream.read(&mut [0; 64]);
            } else {
                held.push(stream);
            }
        }
        assert!(source.is_alive());
        let puller = transport(LIMIT);
        let into = Buffer::new(LEN).unwrap();
        puller
            .fetch(
                source.addr,
                &source.key,
                &whole(LEN),
                &into,
                &Cancel::new(),
                |_| (),
            )
            .unwrap();
        assert!(holds(&into, 3));
    }
    drop(held);
    assert!(source.is_alive());
}
