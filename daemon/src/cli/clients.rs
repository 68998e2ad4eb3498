//! What is served to programs that are not the job's: on this machine as it is, to others over TLS.
use super::failure::Failure;
use super::listeners::no_tls;
use crate::nodes::JobSecret;
use crate::state::{StateDir, write_private};
use nix::ifaddrs::getifaddrs;
use robust_http::Wire;
use robust_identity::EngineServer;
use std::net::{IpAddr, SocketAddr};

/// What callers speak at this address: TLS where it is one of the network, certified for all by which this machine
/// may be called there.
pub(super) fn wire(state: &StateDir, at: SocketAddr, now_ms: u64) -> Result<Wire, Failure> {
    match at.ip().to_canonical() {
        ip if ip.is_loopback() => Ok(Wire::Plain),
        ip => Ok(Wire::Sealed(server(state, ip, now_ms)?)),
    }
}

fn server(state: &StateDir, at: IpAddr, now_ms: u64) -> Result<EngineServer, Failure> {
    const WHAT: &str = "TLS towards clients";
    let secret = JobSecret::load_or_create(&state.clients_key(), None)?;
    let authority = secret.clients().map_err(no_tls(WHAT))?;
    write_private(
        &state.clients_authority(),
        authority.certificate().as_bytes(),
    )?;
    authority.server(names(at), now_ms).map_err(no_tls(WHAT))
}

/// The names and addresses of this machine at which a listener on this address is called.
fn names(at: IpAddr) -> Vec<String> {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy().into_owned();
    let addresses: Vec<String> = match at.is_unspecified() {
        false => vec![at.to_string()],
        true => {
            let interfaces = getifaddrs().into_iter().flatten();
            let ip = |interface: nix::ifaddrs::InterfaceAddress| {
                let there = interface.address?;
                let v4 = there.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
                v4.or_else(|| there.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
            };
            interfaces.filter_map(ip).map(|ip| ip.to_string()).collect()
        }
    };
    // A name that is none of DNS's is no name that a client can call.
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
    let host = Some(host).filter(|host| !host.is_empty() && host.chars().all(plain));
    addresses.into_iter().chain(host).collect()
}
