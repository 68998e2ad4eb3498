//! A leader that only says what time it is: too late or too early.
use robust_identity::{Answering, Holders, answer_named};
use robust_proto::v1::node_host_server::{NodeHost, NodeHostServer};
use robust_proto::v1::{self, LeaderMessage, NodeMessage, Part, ShardPart};
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_stream::Empty;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status, Streaming};

/// Serves until dropped.
pub struct Leader {
    pub addr: SocketAddr,
    _runtime: Runtime,
}

impl Leader {
    /// On a free loopback port, for who has this token, with a clock that is so much ahead.
    pub fn start(token: &str, ahead_ms: u64) -> Leader {
        let runtime = super::fake::server::runtime();
        let bind = || runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let (outer, listener) = (bind(), bind());
        let addr = outer.local_addr().unwrap();
        let inner = listener.local_addr().unwrap();
        let holders = Holders::of(token).unwrap();
        runtime.spawn(unseal(outer, holders.answering().unwrap(), inner));
        let service = NodeHostServer::new(Clock { ahead_ms });
        runtime.spawn(async move {
            tonic::transport::Server::builder()
                .add_service(service)
                .serve_with_incoming(TcpListenerStream::new(listener))
                .await
        });
        Leader {
            addr,
            _runtime: runtime,
        }
    }
}

/// Takes TLS off connections before the service has them.
async fn unseal(listener: TcpListener, answering: Answering, to: SocketAddr) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let answering = answering.clone();
        tokio::spawn(async move {
            let ((), mut sealed) = answer_named(stream, |_| Some((answering, ()))).await?;
            let mut plain = TcpStream::connect(to).await?;
            copy_bidirectional(&mut sealed, &mut plain).await
        });
    }
}

struct Clock {
    ahead_ms: u64,
}

fn not_here<T>() -> Result<T, Status> {
    Err(Status::unimplemented("only the clock"))
}

#[tonic::async_trait]
impl NodeHost for Clock {
    type JoinStream = Empty<Result<LeaderMessage, Status>>;
    type ReadFileStream = Empty<Result<Part, Status>>;
    type ReadShardStream = Empty<Result<ShardPart, Status>>;

    async fn join(
        &self,
        _: Request<Streaming<NodeMessage>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        not_here()
    }

    async fn enroll(
        &self,
        _: Request<v1::EnrollRequest>,
    ) -> Result<Response<v1::EnrollReply>, Status> {
        not_here()
    }

    async fn read_file(
        &self,
        _: Request<v1::ReadFileRequest>,
    ) -> Result<Response<Self::ReadFileStream>, Status> {
        not_here()
    }

    async fn read_shard(
        &self,
        _: Request<v1::ReadShardRequest>,
    ) -> Result<Response<Self::ReadShardStream>, Status> {
        not_here()
    }

    async fn keep_shard(
        &self,
        _: Request<Streaming<ShardPart>>,
    ) -> Result<Response<v1::KeptShard>, Status> {
        not_here()
    }

    async fn find_shard(
        &self,
        _: Request<v1::HeldShard>,
    ) -> Result<Response<v1::ShardPlaces>, Status> {
        not_here()
    }

    async fn clock(
        &self,
        request: Request<v1::ClockRequest>,
    ) -> Result<Response<v1::ClockReply>, Status> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let from = request.remote_addr().map(|a| a.ip().to_string());
        Ok(Response::new(v1::ClockReply {
            unix_us: u64::try_from(now.as_micros()).unwrap() + self.ahead_ms * 1000,
            version: "0.1.0".to_owned(),
            seen_as: from.unwrap_or_default(),
        }))
    }
}
