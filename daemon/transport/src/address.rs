//! Where a transport is called: by a number on its own machine, by an address from others.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Before the number, in an address as text.
const LOCAL: &str = "shm:";
/// Between the number and the address.
const AND: char = '@';
/// Before the address over RDMA.
const RDMA: &str = "+rdma:";

/// Where a transport is called; travels as text or as bytes.
///
/// `shm:00f3a61b7c9d2e48` on its own machine only, `10.0.0.7:4711` over the network only,
/// `shm:00f3a61b7c9d2e48@10.0.0.7:4711` either way; behind either of the latter `+rdma:10.0.0.7:4812`, by those
/// who have RDMA, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address {
    /// Names its socket in the job's folder; 0: it has none.
    number: u64,
    net: Option<SocketAddr>,
    rdma: Option<SocketAddr>,
}

/// A text is no address of a transport.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no address of a transport: `shm:NUMBER`, `IP:PORT`, or `shm:NUMBER@IP:PORT`")]
pub struct AddressError(String);

/// Length of a socket's address.
const SOCKET: usize = 18;

impl Address {
    /// Length of [`Address::to_bytes`].
    pub(crate) const BYTES: usize = 8 + 2 * SOCKET;

    /// On this machine under a number, from others under an address, or both.
    pub(crate) fn new(number: Option<u64>, net: Option<SocketAddr>) -> Address {
        Address {
            number: number.unwrap_or(0),
            net,
            rdma: None,
        }
    }

    /// The same, and over RDMA there.
    pub(crate) fn with_rdma(self, rdma: Option<SocketAddr>) -> Address {
        Address { rdma, ..self }
    }

    /// Its number on its own machine.
    pub(crate) fn number(&self) -> Option<u64> {
        (self.number != 0).then_some(self.number)
    }

    /// Where others reach it.
    pub fn net(&self) -> Option<SocketAddr> {
        self.net
    }

    /// Where others reach it over RDMA.
    pub fn rdma(&self) -> Option<SocketAddr> {
        self.rdma
    }

    /// The number, then twice 16 bytes of IPv6, or of IPv4 mapped into it, and a port u16; all 0 where there is none.
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..8 + SOCKET].copy_from_slice(&socket_to_bytes(self.net));
        bytes[8 + SOCKET..].copy_from_slice(&socket_to_bytes(self.rdma));
        bytes
    }

    /// The address of [`Address::to_bytes`], IPv4 as such.
    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Address {
        let number: [u8; 8] = std::array::from_fn(|at| bytes[at]);
        let socket = |from: usize| socket_from_bytes(std::array::from_fn(|at| bytes[from + at]));
        Address {
            number: u64::from_le_bytes(number),
            net: socket(8),
            rdma: socket(8 + SOCKET),
        }
    }

    /// As its bytes give it back: two texts of one address are equal then.
    pub(crate) fn canonical(self) -> Address {
        let net = |net: SocketAddr| SocketAddr::new(net.ip().to_canonical(), net.port());
        Address {
            net: self.net.map(net),
            rdma: self.rdma.map(net),
            ..self
        }
    }
}

fn socket_to_bytes(socket: Option<SocketAddr>) -> [u8; SOCKET] {
    let none = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
    let socket = socket.unwrap_or(none);
    let ip = match socket.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let mut bytes = [0; SOCKET];
    bytes[..16].copy_from_slice(&ip.octets());
    bytes[16..].copy_from_slice(&socket.port().to_le_bytes());
    bytes
}

fn socket_from_bytes(bytes: [u8; SOCKET]) -> Option<SocketAddr> {
    let octets: [u8; 16] = std::array::from_fn(|at| bytes[at]);
    let port = u16::from_le_bytes([bytes[16], bytes[17]]);
    (port != 0).then(|| SocketAddr::new(Ipv6Addr::from(octets).to_canonical(), port))
}

impl From<SocketAddr> for Address {
    fn from(net: SocketAddr) -> Address {
        Address::new(None, Some(net))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.number(), self.net) {
            (Some(number), Some(net)) => write!(f, "{LOCAL}{number:016x}{AND}{net}"),
            (Some(number), None) => write!(f, "{LOCAL}{number:016x}"),
            (None, Some(net)) => write!(f, "{net}"),
            (None, None) => f.write_str("nowhere"),
        }?;
        self.rdma.map_or(Ok(()), |rdma| write!(f, "{RDMA}{rdma}"))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Address, AddressError> {
        text.parse()
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let wrong = || AddressError(text.to_owned());
        let net = |text: &str| text.parse().map_err(|_| wrong());
        if let Some((rest, rdma)) = text.split_once(RDMA) {
            let rest: Address = rest.parse().map_err(|_| wrong())?;
            return Ok(rest.with_rdma(Some(net(rdma)?)));
        }
        let Some(local) = text.strip_prefix(LOCAL) else {
            return Ok(Address::from(net(text)?));
        };
        let (number, at) = match local.split_once(AND) {
            Some((number, at)) => (number, Some(net(at)?)),
            None => (local, None),
        };
        match u64::from_str_radix(number, 16) {
            Ok(number @ 1..) => Ok(Address::new(Some(number), at)),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_address_survives_its_text_and_its_bytes(
            number in proptest::option::of(1u64..), ip: IpAddr, port in 0u16.., rdma in 0u16..
        ) {
            let at = |port: u16| (port != 0).then(|| SocketAddr::new(ip, port));
            let net = at(port);
            let rdma = at(rdma).filter(|_| net.is_some());
            let address = Address::new(number, net).with_rdma(rdma);
            prop_assert_eq!(Address::from_bytes(address.to_bytes()), address.canonical());
            if number.is_some() || net.is_some() {
                prop_assert_eq!(address.to_string().parse::<Address>().unwrap(), address);
            }
        }
    }

    #[test]
    fn what_is_no_address_is_told_as_it_was_given() {
        for text in [
            "",
            "shm:",
            "shm:0",
            "shm:12@",
            "nine",
            "10.0.0.1",
            "shm:xyz@10.0.0.1:5",
            "10.0.0.1:5+rdma:",
            "+rdma:10.0.0.1:5",
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }
}
