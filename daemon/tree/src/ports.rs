//! Ports for programs that are told where to listen.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as Name, UnixDatagram};

/// Where the kernel says which ports it gives to connections that go out. One of those would be taken
/// by some connection while its program is still being loaded.
const OUTGOING: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Below it lie the ports of other people's services; from 30,000 those of Kubernetes' nodes.
const FIRST: u16 = 15_000;
const END: u16 = 30_000;

/// Lends `count` TCP ports that nobody listens on at `host`. Until this process ends nobody else in its
/// network namespace is lent them, though the program that was told of them listens only later, or not
/// at once again after a restart.
///
/// # Errors
/// Too few are free, or the sockets that stand for them cannot be made.
pub fn lend_ports(count: u32, host: IpAddr) -> io::Result<Vec<u16>> {
    let below = end(&std::fs::read_to_string(OUTGOING).unwrap_or_default());
    let range = below - FIRST;
    // Anywhere: who starts at the same time asks for others.
    let somewhere = RandomState::new().build_hasher().finish() % u64::from(range);
    let start = u16::try_from(somewhere).unwrap_or_default();
    let mut ports = Vec::new();
    for step in 0..range {
        if ports.len() == count as usize {
            break;
        }
        let port = FIRST + (start + step) % range;
        if TcpListener::bind(SocketAddr::new(host, port)).is_ok() && keep_port(port)? {
            ports.push(port);
        }
    }
    match ports.len() == count as usize {
        true => Ok(ports),
        false => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("of the ports {FIRST} to {below} too few are free"),
        )),
    }
}

/// Keeps a port from being lent to anybody else while this process lives. False where somebody has it.
///
/// # Errors
/// The socket that stands for it cannot be made.
pub fn keep_port(port: u16) -> io::Result<bool> {
    // Such names live in the network namespace, as ports do, and go with their process.
    let name = Name::from_abstract_name(format!("robust-port-{port}"))?;
    match UnixDatagram::bind_addr(&name) {
        Ok(kept) => {
            std::mem::forget(kept);
            Ok(true)
        }
        Err(taken) if taken.kind() == io::ErrorKind::AddrInUse => Ok(false),
        Err(other) => Err(other),
    }
}

fn end(outgoing: &str) -> u16 {
    let lowest = outgoing.split_whitespace().next();
    let lowest = lowest.and_then(|low| low.parse().ok());
    // A machine that gives out nearly all of them leaves no better choice.
    let lowest = lowest.filter(|low| *low > FIRST + 1000).unwrap_or(END);
    lowest.min(END)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn no_port_is_lent_twice_though_nobody_listens_on_it_yet() {
        let first = lend_ports(3, HOST).unwrap();
        let more = lend_ports(2, HOST).unwrap();
        let all: BTreeSet<u16> = first.iter().chain(&more).copied().collect();
        assert_eq!(all.len(), 5);
        assert!(!keep_port(first[0]).unwrap());
        for port in all {
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        }
    }

    #[test]
    fn none_is_of_those_that_the_kernel_gives_to_connections() {
        assert_eq!(end("20000\t60999\n"), 20_000);
        assert_eq!(end("32768 60999"), END);
        assert_eq!(end("1024 65535"), END);
        assert_eq!(end(""), END);
    }
}
