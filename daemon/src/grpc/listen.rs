//! Where the services listen: Unix sockets for their owner, TCP with TLS for operators' tools and for nodes, and on
//! loopback only for the rest.
use super::MAX_MESSAGE_BYTES;
use super::bounded::{Sealed, bounded, bounded_until_left};
use super::gate::{Gate, MOST_BYTES};
use super::rights::{Caller, Rights};
use super::{ControlService, RoleHostService};
use crate::known::Known;
use crate::nodes::{KEEPALIVE, KEEPALIVE_TIMEOUT, NodeHostService, SessionCheck, sealed};
use crate::state::{StateDirError, make_private};
use axum::response::IntoResponse;
use futures::{FutureExt, Stream, TryStreamExt};
use robust_identity::Door;
use robust_proto::v1::control_server::ControlServer;
use robust_proto::v1::node_host_server::NodeHostServer;
use robust_proto::v1::role_host_server::{RoleHost, RoleHostServer};
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::time::sleep;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::Request;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;

/// Headers of a request: a method's name and a session's key are some hundred bytes.
const HEADER_BYTES: u32 = 8 << 10;
/// Requests at a time on one connection of a node, over which the links and calls of all its roles go.
pub const STREAMS_OF_A_NODE: u32 = 2048;
/// The same of an operator's tool. The console keeps a handful under way.
const STREAMS_OF_A_TOOL: u32 = 64;
/// A tool's connection on which nothing moves for so long is tried, and closed when it does not answer within as long:
/// who vanished holds no place for ever.
const QUIET: Duration = Duration::from_secs(20);

/// So long the connections of those who were answered have to end, before the address is free: who is told on one that another
/// controller leads is not to be told so when this one does.
const LEAVES: Duration = Duration::from_millis(200);

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
    let (audit, revoked) = (control.audit.clone(), control.revoked.clone());
    let server = ControlServer::new(control).max_decoding_message_size(MOST_BYTES);
    Gate::new(server, audit, revoked)
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
        .max_concurrent_streams(STREAMS_OF_A_NODE)
        .http2_max_header_list_size(HEADER_BYTES)
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
    serve_tools(bounded(listener, door), guarded(control), QUIET).await
}

/// Answers operators' tools over TCP with `answers`, until `end`: the address is free then, and whoever is connected connects
/// anew, as each connection is ended in order.
pub async fn serve_answers(
    listener: TcpListener,
    answers: Routes,
    door: Door<Rights>,
    end: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let (tools, accepting) = bounded_until_left(listener, door);
    let serving = server_of_tools(QUIET).add_routes(answers);
    let end = end.shared();
    let late = end.clone().then(|()| sleep(LEAVES));
    let served = tokio::select! {
        served = serving.serve_with_incoming_shutdown(tools, end) => served,
        // One that does not hear that its connection ends is not waited for.
        () = late => Ok(()),
    };
    // Nobody takes the listener's connections any more.
    drop(accepting.await);
    served
}

async fn serve_tools<S>(
    tools: impl Stream<Item = io::Result<Sealed>>,
    control: S,
    quiet: Duration,
) -> Result<(), tonic::transport::Error>
where
    S: Service<Request<Body>, Error = Infallible> + NamedService + Clone + Send + Sync + 'static,
    S::Response: IntoResponse,
    S::Future: Send,
{
    server_of_tools(quiet)
        .add_service(control)
        .serve_with_incoming(tools)
        .await
}

fn server_of_tools(quiet: Duration) -> Server {
    Server::builder()
        .max_concurrent_streams(STREAMS_OF_A_TOOL)
        .http2_max_header_list_size(HEADER_BYTES)
        .http2_keepalive_interval(Some(quiet))
        .http2_keepalive_timeout(Some(quiet))
}

#[cfg(test)]
#[path = "listen_tests.rs"]
mod tests;
