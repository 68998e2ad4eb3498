//! Ports that are lent to services for the whole job.
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;

/// Where the kernel says which ports it gives to connections that go out. One of those would be taken
/// by some connection while its service is being started again.
const OUTGOING: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const FIRST: u16 = 15_000;

/// Free ports that nobody else was lent; `root` spreads the jobs of a machine.
pub fn lend(
    count: u32,
    bind: IpAddr,
    lent: &mut BTreeSet<u16>,
    root: &Path,
) -> io::Result<Vec<u16>> {
    let seed = xxhash_rust::xxh3::xxh3_64(root.as_os_str().as_encoded_bytes());
    let below = lowest_outgoing(&std::fs::read_to_string(OUTGOING).unwrap_or_default());
    let range = below.saturating_sub(FIRST).max(1);
    let start = u16::try_from(seed % u64::from(range)).unwrap_or_default();
    let candidates = (0..range).map(|n| FIRST + (start + n) % range);
    let mut ports = Vec::new();
    for port in candidates {
        if ports.len() == count as usize {
            break;
        }
        if !lent.contains(&port) && TcpListener::bind(SocketAddr::new(bind, port)).is_ok() {
            lent.insert(port);
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

fn lowest_outgoing(range: &str) -> u16 {
    let lowest = range.split_whitespace().next();
    let lowest = lowest.and_then(|low| low.parse().ok());
    // A machine that gives out nearly all of them leaves no better choice.
    lowest.filter(|low| *low > FIRST + 1000).unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn no_port_is_lent_twice_or_is_one_of_the_kernels() {
        let (mut lent, host) = (BTreeSet::new(), Ipv4Addr::LOCALHOST.into());
        let first = lend(3, host, &mut lent, Path::new("/a")).unwrap();
        let held = TcpListener::bind((Ipv4Addr::LOCALHOST, first[2] + 1));
        let more = lend(2, host, &mut lent, Path::new("/a")).unwrap();
        let all: BTreeSet<u16> = first.iter().chain(&more).copied().collect();
        assert_eq!(all.len(), 5);
        assert!(held.is_err() || !more.contains(&(first[2] + 1)));
        assert_eq!(lowest_outgoing("32768\t60999\n"), 32_768);
        assert_eq!(lowest_outgoing("1024 65535"), 32_768);
    }
}
