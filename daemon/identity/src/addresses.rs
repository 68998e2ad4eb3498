//! Whom an address counts as, where each caller may have so much.
use std::net::{IpAddr, Ipv6Addr};

/// The caller behind an address: an IPv4 address, written as either; of IPv6 the network of 64 bits, all of whose
/// addresses one machine may have (RFC 4291, 2.5.4).
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => {
            let network = v6.to_bits() >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_of_one_machine_are_one_caller() {
        let v6 = |net: u16, host: u16| IpAddr::from([0x2001, net, 0, 0, 0, 0, 0, host]);
        assert_eq!(network(v6(1, 1)), network(v6(1, 2)));
        assert_ne!(network(v6(1, 1)), network(v6(2, 1)));
        let v4 = IpAddr::from([10, 0, 0, 1]);
        let mapped = IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x0a00, 0x0001]);
        assert_eq!((network(v4), network(mapped)), (v4, v4));
        assert_ne!(network(v4), network(IpAddr::from([10, 0, 0, 2])));
    }
}
