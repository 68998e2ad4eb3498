//! Where the services listen: Unix sockets for their owner, TCP with TLS for operators' tools and for nodes, and on
//! loopback only for the rest.
use super::MAX_MESSAGE_BYTES;
use super::bounded::bounded;
use super::gate::Gate;
use super::rights::{Caller, Rights};
use super::{ControlService, RoleHostService};
use crate::known::Known;
use crate::nodes::{KEEPALIVE, KEEPALIVE_TIMEOUT, NodeHostService, SessionCheck, sealed};
use crate::state::{StateDirError, make_private};
use futures::{Stream, TryStreamExt};
use robust_identity::Door;
use robust_proto::v1::control_server::ControlServer;
use robust_proto::v1::node_host_server::NodeHostServer;
use robust_proto::v1::role_host_server::{RoleHost, RoleHostServer};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;

/// Why the daemon does not listen somewhere.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Not an address.
    #[error("{flag} {given}: not an ip:port address; for example 127.0.0.1:7070")]
    NotAnAddress {
        /// The argument.
        flag: &'static str,
        /// What was given.
        given: String,
    },
    /// Roles need one address that other nodes reach.
    #[error(
        "--listen-nodes {addr}: every address of this machine; say with --advertise at which of \
         them other nodes reach its roles"
    )]
    NothingToAdvertise {
        /// What was given.
        addr: SocketAddr,
    },
    /// Something else listens there.
    #[error("{flag} {addr}: the port is in use by another process; choose another")]
    InUse {
        /// The argument.
        flag: &'static str,
        /// Where.
        addr: SocketAddr,
    },
    /// The operating system refused.
    #[error("cannot listen on {place}: {source}")]
    Bind {
        /// Where.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// A Unix socket's path is longer than the system allows.
    #[error(
        "the state directory's path is too long for a Unix socket ({path}, {max} bytes at most); \
         choose a shorter one with --state-dir"
    )]
    PathTooLong {
        /// The socket.
        path: PathBuf,
        /// Longest path.
        max: usize,
    },
    /// The socket's mode could not be set.
    #[error(transparent)]
    Mode(#[from] StateDirError),
}

/// Reads the address of an argument that other machines may reach.
pub fn reachable(flag: &'static str, given: &str) -> Result<SocketAddr, ListenError> {
    parse(flag, given)
}

fn parse(flag: &'static str, given: &str) -> Result<SocketAddr, ListenError> {
    given.parse().map_err(|_| ListenError::NotAnAddress {
        flag,
        given: given.to_owned(),
    })
}

/// Reads a `--listen-nodes` address, and the address at which other nodes reach this one's roles.
pub fn for_nodes(
    given: &str,
    advertise: Option<IpAddr>,
) -> Result<(SocketAddr, IpAddr), ListenError> {
    let addr = parse("--listen-nodes", given)?;
    match advertise {
        Some(reached) => Ok((addr, reached)),
        None if addr.ip().is_unspecified() => Err(ListenError::NothingToAdvertise { addr }),
        None => Ok((addr, addr.ip().to_canonical())),
    }
}

/// Binds the TCP address of an argument.
pub async fn bind_tcp(flag: &'static str, addr: SocketAddr) -> Result<TcpListener, ListenError> {
    TcpListener::bind(addr)
        .await
        .map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse { flag, addr },
            _ => ListenError::Bind {
                place: addr.to_string(),
                source,
            },
        })
}

/// Binds a Unix socket that only its owner can use. The directory is the owner's alone, so nobody
/// else gets in before the mode is set.
pub fn bind_unix(path: &Path) -> Result<UnixListener, ListenError> {
    // sockaddr_un holds 108 bytes with the terminating zero.
    const MAX: usize = 107;
    if path.as_os_str().len() > MAX {
        return Err(ListenError::PathTooLong {
            path: path.to_owned(),
            max: MAX,
        });
    }
    let listener = UnixListener::bind(path).map_err(|source| ListenError::Bind {
        place: path.display().to_string(),
        source,
    })?;
    make_private(path)?;
    Ok(listener)
}

fn guarded(control: ControlService) -> Gate<ControlServer<ControlService>> {
    let audit = control.audit.clone();
    let server = ControlServer::new(control).max_decoding_message_size(MAX_MESSAGE_BYTES);
    Gate::new(server, audit)
}

/// The socket's connections, each with who is at its other end, as long as that can be asked: before any of them ends.
fn local(listener: UnixListener) -> impl Stream<Item = io::Result<Known<UnixStream, Caller>>> {
    UnixListenerStream::new(listener).map_ok(|stream| {
        let caller = Caller::local(&stream);
        Known::new(stream, caller)
    })
}

/// Serves operators' tools on their socket, until the task is dropped.
pub async fn serve_control(
    listener: UnixListener,
    control: ControlService,
) -> Result<(), tonic::transport::Error> {
    Server::builder()
        .add_service(guarded(control))
        .serve_with_incoming(local(listener))
        .await
}

/// Like [`serve_control`], until `end`: requests under way get their answers then.
pub async fn serve_control_until(
    listener: UnixListener,
    control: ControlService,
    end: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    Server::builder()
        .add_service(guarded(control))
        .serve_with_incoming_shutdown(local(listener), end)
        .await
}

/// Serves role processes on their socket, until the task is dropped.
pub async fn serve_roles(
    listener: UnixListener,
    roles: impl RoleHost,
) -> Result<(), tonic::transport::Error> {
    Server::builder()
        .add_service(RoleHostServer::new(roles).max_decoding_message_size(MAX_MESSAGE_BYTES))
        .serve_with_incoming(UnixListenerStream::new(listener))
        .await
}

/// Serves the job's other nodes, and through them their roles, until the task is dropped.
pub async fn serve_nodes(
    listener: TcpListener,
    nodes: NodeHostService,
    roles: RoleHostService,
) -> Result<(), tonic::transport::Error> {
    let roles = RoleHostServer::new(roles).max_decoding_message_size(MAX_MESSAGE_BYTES);
    let roles = InterceptedService::new(roles, SessionCheck(nodes.sessions.clone()));
    let incoming = sealed(listener, nodes.members.clone());
    Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_service(roles)
        .add_service(NodeHostServer::new(nodes).max_decoding_message_size(MAX_MESSAGE_BYTES))
        .serve_with_incoming(incoming)
        .await
}

/// Serves operators' tools over TCP to those who prove to have a token, until the task is dropped.
pub async fn serve_tcp(
    listener: TcpListener,
    control: ControlService,
    door: Door<Rights>,
) -> Result<(), tonic::transport::Error> {
    Server::builder()
        .add_service(guarded(control))
        .serve_with_incoming(bounded(listener, door))
        .await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_no_address_is_said_with_an_example() {
        for good in ["127.0.0.1:0", "[::1]:7070", "0.0.0.0:7070", "10.0.0.1:1"] {
            reachable("--listen", good).unwrap();
        }
        for bad in ["localhost:1", "7070", "127.0.0.1", "127.0.0.1:99999", ""] {
            let refused = reachable("--metrics", bad).unwrap_err();
            assert!(matches!(refused, ListenError::NotAnAddress { .. }), "{bad}");
        }
    }

    #[test]
    fn nodes_are_listened_for_where_they_are_told_to_reach_the_roles() {
        let (addr, reached) = for_nodes("127.0.0.1:7071", None).unwrap();
        assert_eq!((addr.port(), reached), (7071, IpAddr::from([127, 0, 0, 1])));
        for_nodes("10.0.0.1:7071", None).unwrap();
        let refusal = for_nodes("0.0.0.0:7071", None).unwrap_err();
        assert!(refusal.to_string().contains("--advertise"));
        let reached = IpAddr::from([10, 0, 0, 1]);
        let (_, at) = for_nodes("0.0.0.0:1", Some(reached)).unwrap();
        assert_eq!(at, reached);
        assert!(for_nodes("nonsense", None).is_err());
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let first = bind_tcp("--listen", "127.0.0.1:0".parse().unwrap())
            .await
            .unwrap();
        let refusal = bind_tcp("--metrics", first.local_addr().unwrap())
            .await
            .unwrap_err();
        assert!(
            refusal.to_string().starts_with("--metrics 127.0.0.1:"),
            "{refusal}"
        );
        assert!(matches!(refusal, ListenError::InUse { .. }));
    }

    #[tokio::test]
    async fn a_socket_is_its_owners_alone_and_a_path_too_long_is_said() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("s.sock");
        let _listener = bind_unix(&path).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let long = temp.path().join("x".repeat(120));
        assert!(matches!(
            bind_unix(&long),
            Err(ListenError::PathTooLong { .. })
        ));
    }
}
