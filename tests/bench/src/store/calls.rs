//! What a role's calls cost by each road: over the Unix socket of its own machine, over TCP in clear, which no daemon
//! offers, and over TLS 1.3 with certificates of both, which is the only road between machines.
//!
//! ```text
//!  a role's link ─┬─ Unix socket ─────────┐
//!                 ├─ TCP ─────────────────┼─► RoleHost ──► leases ──► store ──► disk
//!                 └─ TLS, both certified ─┘
//! ```
//! Both ends are in this process. `call_ROAD_us` is one call after the other of one that asks nothing of the store;
//! `spans_ROAD_per_s` are spans of eight tokens that are acknowledged as durable, of 64 conversations whose spans go
//! sixteen in a call, four calls at a time.
use super::{BenchError, Report, StoreArgs};
use futures::future::join_all;
use hyper_util::rt::TokioIo;
use robust_identity::{Caller, Door, Holders};
use robust_proto::v1::role_host_client::RoleHostClient;
use robust_proto::v1::role_host_server::RoleHostServer;
use robust_proto::v1::{self, role_message};
use robust_shared::ids::{Incarnation, TrajectoryId};
use robustd::grpc::{RoleHostService, serve_roles};
use robustd::known::Known;
use robustd::leases::Leases;
use robustd::links::{LinkEvent, RouteEvent, Via};
use robustd::store::Store;
use robustd::tell::Tell;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream, UnboundedReceiverStream};
use tonic::transport::{Channel, Endpoint, Server, Uri};

/// The role that calls.
const ROLE: Incarnation = Incarnation(1);
/// A secret of this run's, of which both ends make their certificates.
const SECRET: &str = "of a benchmark, and of nothing else";
/// Calls whose latency is measured in a round.
const CALLS: usize = 2000;
/// Calls before, which open what the first ones open.
const FIRST_CALLS: usize = 200;
/// How long spans are sent in a round.
const SENDING: Duration = Duration::from_secs(2);
/// Calls under way at a time, and conversations in each.
const LANES: u32 = 4;
const PARTS: u32 = 16;
/// Tokens of a span, as an engine of 32 tokens a second and conversation makes them in a quarter of one.
const TOKENS: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Road {
    Unix,
    Tcp,
    Tls,
}

impl Road {
    const ALL: [Self; 3] = [Self::Unix, Self::Tcp, Self::Tls];

    fn name(self) -> &'static str {
        match self {
            Self::Unix => "unix",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
        }
    }
}

/// The roads one after the other in each round, each with a store of its own.
pub(super) fn measure(args: &StoreArgs, dir: &Path, report: &mut Report) -> Result<(), BenchError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    for round in 0..args.rounds {
        for road in Road::ALL {
            let name = road.name();
            let dir = dir.join(format!("calls-{round}-{name}"));
            let (call, spans) = runtime.block_on(by(road, &dir, (CALLS, SENDING)))?;
            report.add(format!("call_{name}_us"), call.as_secs_f64() * 1e6);
            report.add(format!("spans_{name}_per_s"), spans);
            std::fs::remove_dir_all(&dir)?;
        }
    }
    report.ratio("call_tls_over_unix", "call_tls_us", "call_unix_us");
    report.ratio("call_tls_over_tcp", "call_tls_us", "call_tcp_us");
    report.ratio("spans_tls_over_unix", "spans_tls_per_s", "spans_unix_per_s");
    report.ratio("spans_tls_over_tcp", "spans_tls_per_s", "spans_tcp_per_s");
    Ok(())
}

/// Half of the calls take less, and the spans that are durable in a second.
async fn by(
    road: Road,
    dir: &Path,
    (calls, sending): (usize, Duration),
) -> Result<(Duration, f64), BenchError> {
    let (store, _) = Store::open(dir)?;
    let leases = Leases::default();
    for lane in 0..LANES {
        for part in 0..PARTS {
            leases.keep(ROLE, conversation(lane, part), 1);
        }
    }
    let mut tasks = JoinSet::new();
    let service = service(leases, store, &mut tasks);
    let channel = open(road, dir, service, &mut tasks).await?;
    let role = Role::attach(channel).await?;
    let call = role.latency(calls).await?;
    let spans = role.spans(sending).await?;
    Ok((call, spans))
}

/// The service of a daemon that admits every link and does nothing besides.
fn service(leases: Leases, store: Store, tasks: &mut JoinSet<()>) -> RoleHostService {
    let (links, mut told) = mpsc::unbounded_channel::<LinkEvent>();
    let (routes, routed) = mpsc::unbounded_channel::<RouteEvent>();
    tasks.spawn(async move {
        // Links and routes are open for as long as somebody keeps their ends.
        let _routed = routed;
        let mut kept = Vec::new();
        while let Some(event) = told.recv().await {
            if let LinkEvent::Attach { down, admitted, .. } = event {
                kept.push(down);
                // Whoever does not wait for the answer is gone, and says so himself.
                let _ = admitted.send(Ok(()));
            }
        }
    });
    let ways = (Tell::into_channel(&links), Tell::into_channel(&routes));
    RoleHostService::new(ways, leases, store, 1)
}

/// Serves by this road, and opens a channel to it.
async fn open(
    road: Road,
    dir: &Path,
    service: RoleHostService,
    tasks: &mut JoinSet<()>,
) -> Result<Channel, BenchError> {
    if road == Road::Unix {
        let path = dir.join("roles.sock");
        let listener = UnixListener::bind(&path)?;
        tasks.spawn(served(serve_roles(listener, service)));
        return connected(move || over_unix(path.clone())).await;
    }
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    let server = Server::builder().add_service(RoleHostServer::new(service));
    // The node through which the role calls, which its connection shows here.
    let via = Via("b".into());
    if road == Road::Tcp {
        let incoming = TcpListenerStream::new(listener).map(move |stream| {
            let stream = stream?;
            stream.set_nodelay(true)?;
            Ok::<_, std::io::Error>(Known::new(stream, via.clone()))
        });
        tasks.spawn(served(server.serve_with_incoming(incoming)));
        return connected(move || over_tcp(addr)).await;
    }
    let holders = Holders::of(SECRET).map_err(other)?;
    let caller = holders.caller().map_err(other)?;
    let door = Door::of(vec![(holders, ())]).map_err(other)?;
    let (proven, incoming) = mpsc::channel(1);
    tasks.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let proof = async {
                stream.set_nodelay(true)?;
                let (_, _, stream) = door.answer(stream).await?;
                Ok::<_, std::io::Error>(Known::new(stream, via.clone()))
            };
            if proven.send(proof.await).await.is_err() {
                return;
            }
        }
    });
    let incoming = ReceiverStream::new(incoming);
    tasks.spawn(served(server.serve_with_incoming(incoming)));
    connected(move || over_tls(addr, caller.clone())).await
}

/// A server that ends early shows in the calls.
async fn served(server: impl Future<Output = Result<(), tonic::transport::Error>>) {
    if let Err(error) = server.await {
        tracing::warn!("the server of the measurement ended: {error}");
    }
}

async fn over_unix(path: PathBuf) -> std::io::Result<UnixStream> {
    UnixStream::connect(path).await
}

async fn over_tcp(addr: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn over_tls(
    addr: SocketAddr,
    caller: Caller,
) -> std::io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
    caller.call(over_tcp(addr).await?).await
}

async fn connected<S, C, F>(connect: C) -> Result<Channel, BenchError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    C: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = std::io::Result<S>> + Send + 'static,
{
    let connector = tower::service_fn(move |_: Uri| {
        let connecting = connect();
        async move { Ok::<_, std::io::Error>(TokioIo::new(connecting.await?)) }
    });
    let endpoint = Endpoint::from_static("http://daemon");
    let channel = endpoint.connect_with_connector(connector).await;
    channel.map_err(other)
}

/// A role that is linked, which its calls suppose.
struct Role {
    client: RoleHostClient<Channel>,
    /// The link is open for as long as it may say something.
    _says: mpsc::UnboundedSender<v1::RoleMessage>,
    _hears: tonic::Streaming<v1::HostMessage>,
}

impl Role {
    async fn attach(channel: Channel) -> Result<Self, BenchError> {
        let mut client = RoleHostClient::new(channel);
        let (says, said) = mpsc::unbounded_channel();
        let hello = v1::Hello {
            incarnation: ROLE.0,
            pid: std::process::id(),
            ..v1::Hello::default()
        };
        let hello = v1::RoleMessage {
            body: Some(role_message::Body::Hello(hello)),
        };
        says.send(hello).map_err(other)?;
        let attached = client.attach(UnboundedReceiverStream::new(said)).await;
        let hears = attached.map_err(other)?.into_inner();
        Ok(Self {
            client,
            _says: says,
            _hears: hears,
        })
    }

    /// Of a call that is answered from memory: the way and nothing else.
    async fn latency(&self, calls: usize) -> Result<Duration, BenchError> {
        let mut client = self.client.clone();
        let mut took = Vec::with_capacity(calls);
        for call in 0..FIRST_CALLS + calls {
            // Nobody gave this ticket, so nothing follows from its release.
            let release = v1::ReleaseRouteRequest {
                ticket: u64::MAX,
                incarnation: ROLE.0,
                broken: false,
            };
            let began = Instant::now();
            client.release_route(release).await.map_err(other)?;
            if call >= FIRST_CALLS {
                took.push(began.elapsed());
            }
        }
        took.sort_unstable();
        Ok(took.get(took.len() / 2).copied().unwrap_or_default())
    }

    /// Spans that are acknowledged in a second.
    async fn spans(&self, sending: Duration) -> Result<f64, BenchError> {
        let began = Instant::now();
        let lanes = (0..LANES).map(|lane| self.send(lane, began + sending));
        let mut acknowledged = 0;
        for sent in join_all(lanes).await {
            acknowledged += sent?;
        }
        Ok(f64::from(acknowledged) / began.elapsed().as_secs_f64())
    }

    /// One call after the other, of the conversations of a lane.
    async fn send(&self, lane: u32, until: Instant) -> Result<u32, BenchError> {
        let mut client = self.client.clone();
        let (mut acknowledged, mut offset) = (0, 0);
        while Instant::now() < until {
            let part = |part| v1::AppendSpansRequest {
                incarnation: ROLE.0,
                trajectory: conversation(lane, part).key(),
                prompt_ids: if offset == 0 { vec![1; 16] } else { Vec::new() },
                turn: 0,
                offset,
                spans: vec![v1::Span {
                    ids: vec![4711; TOKENS],
                    logprobs: vec![-0.25; TOKENS],
                    version: 7,
                }],
            };
            let batch = v1::SpansBatch {
                incarnation: ROLE.0,
                parts: (0..PARTS).map(part).collect(),
            };
            let replies = client.append_spans_batch(batch).await.map_err(other)?;
            let replies = replies.into_inner().replies;
            if let Some(refused) = replies.iter().find(|r| r.code != 0) {
                return Err(BenchError::Else(refused.message.clone()));
            }
            acknowledged += PARTS;
            offset += TOKENS as u32;
        }
        Ok(acknowledged)
    }
}

fn conversation(lane: u32, part: u32) -> TrajectoryId {
    TrajectoryId {
        batch: 1,
        group: lane,
        member: part,
    }
}

fn other(error: impl std::fmt::Display) -> BenchError {
    BenchError::Else(error.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn calls_and_spans_are_answered_by_each_road() {
        for road in Road::ALL {
            let dir = tempfile::tempdir().unwrap();
            let (call, spans) = by(road, dir.path(), (20, Duration::from_millis(50)))
                .await
                .unwrap();
            assert!(call > Duration::ZERO && spans > 0.0, "{}", road.name());
        }
    }
}
