//! Where a transport is called: by a number on its own machine, by an address from others.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::AddressError;

/// Before the number, in an address as text.
const LOCAL: &str = "shm:";
/// Between the number and the address.
const AND: char = '@';

/// Where a transport is called; travels as text or as bytes.
///
/// `shm:00f3a61b7c9d2e48` on its own machine only, `10.0.0.7:4711` over the network only,
/// `shm:00f3a61b7c9d2e48@10.0.0.7:4711` either way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address {
    /// Names its socket in the job's folder; 0: it has none.
    number: u64,
    net: Option<SocketAddr>,
}

impl Address {
    /// Length of [`Address::to_bytes`].
    pub(crate) const BYTES: usize = 26;

    /// On this machine under a number, from others under an address, or both.
    pub(crate) fn new(number: Option<u64>, net: Option<SocketAddr>) -> Address {
        Address {
            number: number.unwrap_or(0),
            net,
        }
    }

    /// Its number on its own machine.
    pub(crate) fn number(&self) -> Option<u64> {
        (self.number != 0).then_some(self.number)
    }

    /// Where others reach it.
    pub fn net(&self) -> Option<SocketAddr> {
        self.net
    }

    /// The number, 16 bytes of IPv6, or of IPv4 mapped into it, and a port u16; all 0 where there is none.
    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let none = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0);
        let net = self.net.unwrap_or(none);
        let ip = match net.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..24].copy_from_slice(&ip.octets());
        bytes[24..].copy_from_slice(&net.port().to_le_bytes());
        bytes
    }

    /// The address of [`Address::to_bytes`], IPv4 as such.
    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Address {
        let number: [u8; 8] = std::array::from_fn(|at| bytes[at]);
        let octets: [u8; 16] = std::array::from_fn(|at| bytes[8 + at]);
        let port = u16::from_le_bytes([bytes[24], bytes[25]]);
        Address {
            number: u64::from_le_bytes(number),
            net: (port != 0).then(|| SocketAddr::new(Ipv6Addr::from(octets).to_canonical(), port)),
        }
    }

    /// As its bytes give it back: two texts of one address are equal then.
    pub(crate) fn canonical(self) -> Address {
        let net = |net: SocketAddr| SocketAddr::new(net.ip().to_canonical(), net.port());
        Address {
            net: self.net.map(net),
            ..self
        }
    }
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
        }
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
            number in proptest::option::of(1u64..), ip: IpAddr, port in 0u16..
        ) {
            let net = (port != 0).then(|| SocketAddr::new(ip, port));
            let address = Address::new(number, net);
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
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }
}
