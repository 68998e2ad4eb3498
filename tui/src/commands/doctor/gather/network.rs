//! Ports and addresses of this machine.
use super::super::facts::{Address, Found, Port};
use std::io;
use std::net::ToSocketAddrs as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// A connection of a machine to itself takes microseconds, or never comes.
const ROUND_TRIP: Duration = Duration::from_secs(2);

/// Whether an address can be listened on.
pub(super) fn port(at: SocketAddr) -> Port {
    let free = TcpListener::bind(at).map(drop).map_err(|e| e.to_string());
    Port { at, free }
}

/// The range of ports that the kernel hands out.
pub(super) fn ephemeral() -> Found<(u16, u16)> {
    const FILE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
    let text = std::fs::read_to_string(FILE).map_err(|e| format!("{FILE}: {e}"))?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(first)), Some(Ok(last))) => Ok((first, last)),
        _ => Err(format!("{FILE}: {text:?}")),
    }
}

/// Whether the kernel has its module `tls` loaded. One that is loaded on demand only is not seen.
pub(super) fn kernel_tls() -> Found<bool> {
    const FILE: &str = "/proc/sys/net/ipv4/tcp_available_ulp";
    let text = std::fs::read_to_string(FILE).map_err(|e| format!("{FILE}: {e}"))?;
    Ok(text.split_ascii_whitespace().any(|module| module == "tls"))
}

/// The addresses by which others would look for this machine, each tried.
pub(super) fn addresses(advertise: Option<IpAddr>, peers: &[SocketAddr]) -> Vec<Address> {
    let mut wanted: Vec<(IpAddr, String)> = Vec::new();
    let mut want = |ip: IpAddr, from: String| {
        if !wanted.iter().any(|(known, _)| *known == ip) {
            wanted.push((ip, from));
        }
    };
    if let Some(ip) = advertise {
        want(ip, "--advertise".to_owned());
    } else {
        for peer in peers {
            if let Ok(ip) = source(*peer) {
                want(ip, format!("the way to {peer}"));
            }
        }
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        // A name without an address is no error: nobody else may use it either.
        for found in (host.as_str(), 0).to_socket_addrs().into_iter().flatten() {
            want(found.ip(), format!("the name {host}"));
        }
    }
    let tried = wanted.into_iter().map(|(ip, from)| Address {
        ip,
        from,
        to_itself: to_itself(ip),
    });
    tried.collect()
}

/// The address that a connection to a peer would come from.
fn source(peer: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(peer)?;
    Ok(socket.local_addr()?.ip())
}

/// Milliseconds for a connection from here to here by way of an address.
fn to_itself(ip: IpAddr) -> Found<f64> {
    let listener = TcpListener::bind((ip, 0)).or_else(|e| match e.kind() {
        // Of a router that hands its connections on, perhaps.
        io::ErrorKind::AddrNotAvailable => match ip {
            IpAddr::V4(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)),
            IpAddr::V6(_) => TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)),
        },
        _ => Err(e),
    });
    let listener = listener.map_err(|e| e.to_string())?;
    let port = listener.local_addr().map_err(|e| e.to_string())?.port();
    let began = Instant::now();
    TcpStream::connect_timeout(&(ip, port).into(), ROUND_TRIP)
        .map_err(|e| format!("it is no address of this machine, and a connection to it: {e}"))?;
    Ok(began.elapsed().as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn loopback_leads_back_and_an_address_of_nobody_does_not() {
        assert!(to_itself(Ipv4Addr::LOCALHOST.into()).unwrap() < ROUND_TRIP.as_secs_f64() * 1e3);
        // TEST-NET-1: nobody has it.
        let nobody = addresses(Some([192, 0, 2, 1].into()), &[]);
        assert!(nobody[0].to_itself.is_err(), "{nobody:?}");
        assert_eq!(nobody[0].from, "--advertise");
    }

    #[test]
    fn a_port_that_somebody_has_is_not_free() {
        let held = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = held.local_addr().unwrap();
        assert!(port(at).free.is_err());
        assert_eq!(port("127.0.0.1:0".parse().unwrap()).free, Ok(()));
    }

    #[test]
    fn the_way_to_a_peer_names_our_side_of_it() {
        let found = addresses(None, &["127.0.0.1:9".parse().unwrap()]);
        assert_eq!(found[0].ip, IpAddr::from(Ipv4Addr::LOCALHOST));
        assert_eq!(found[0].from, "the way to 127.0.0.1:9");
    }
}
