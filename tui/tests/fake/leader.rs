//! A leader that only says what time it is: too late or too early.
use robust_proto::v1::node_host_server::{NodeHost, NodeHostServer};
use robust_proto::v1::{self, LeaderMessage, NodeMessage, Part, ShardPart};
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::net::TcpListener;
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
    /// On a free loopback port, with a clock that is so much ahead.
    pub fn start(ahead_ms: u64) -> Leader {
        let runtime = super::fake::runtime();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let addr = listener.local_addr().unwrap();
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
