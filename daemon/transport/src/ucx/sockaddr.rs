//! `SocketAddr` to and from C's `sockaddr_in` and `sockaddr_in6`.
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use ucx_sys::{sockaddr_storage, ucs_sock_addr_t};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Owns the C form.
pub(super) struct CSockAddr {
    storage: sockaddr_storage,
    len: u32,
}

impl CSockAddr {
    pub fn new(addr: SocketAddr) -> CSockAddr {
        let mut storage = sockaddr_storage::default();
        let bytes = &mut storage.bytes;
        bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
        let (family, len) = match addr {
            SocketAddr::V4(v4) => {
                bytes[4..8].copy_from_slice(&v4.ip().octets());
                (AF_INET, 16)
            }
            SocketAddr::V6(v6) => {
                bytes[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
                bytes[8..24].copy_from_slice(&v6.ip().octets());
                bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
                (AF_INET6, 28)
            }
        };
        bytes[0..2].copy_from_slice(&family.to_ne_bytes());
        CSockAddr { storage, len }
    }

    /// Valid as long as `self` stays where it is.
    pub fn as_ucs(&self) -> ucs_sock_addr_t {
        ucs_sock_addr_t {
            addr: (&raw const self.storage).cast(),
            addrlen: self.len,
        }
    }
}

pub(super) fn from_c(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let bytes = &storage.bytes;
    let four = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match u16::from_ne_bytes([bytes[0], bytes[1]]) {
        AF_INET => Some((Ipv4Addr::from(four(4)), port).into()),
        AF_INET6 => {
            let ip: [u8; 16] = bytes[8..24].try_into().ok()?;
            let (flow, scope) = (u32::from_ne_bytes(four(4)), u32::from_ne_bytes(four(24)));
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, flow, scope).into())
        }
        _ => None,
    }
}
