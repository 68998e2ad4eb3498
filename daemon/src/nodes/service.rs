//! The leader's service for nodes.
use super::files::parts;
use super::proof::{Handshake, NONCE_BYTES, Secret, Side, nonce};
use super::sessions::Sessions;
use super::shards::{ShardError, Shards};
use super::{HANDSHAKE, JobFiles, NodeLinkEvent, NodeRefused, outgoing};
use crate::links::{LinkId, Via};
use crate::tell::Tell;
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_host_server::NodeHost;
use robust_proto::v1::node_message::Body as Up;
use robust_proto::v1::{self, LeaderMessage, NodeMessage, Part};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

/// The way to a node, in order.
pub type Orders = mpsc::UnboundedSender<v1::LeaderMessage>;
/// Longest name and identity: they are shown and kept.
const LONGEST_NAME: usize = 64;

/// A node that proved itself and wants to be admitted.
#[derive(Debug)]
pub struct Joined {
    /// Its name.
    pub name: String,
    /// Where its connection comes from.
    pub from: String,
    /// What it has.
    pub proof: v1::NodeProof,
    /// Names this stream; a node that joins again gets a new one.
    pub link: LinkId,
    /// The way to it.
    pub orders: Orders,
}

/// The service that nodes join. Everything it hears goes to the driver.
#[derive(Clone, Debug)]
pub struct NodeHostService {
    /// The way to the driver.
    pub events: Tell<NodeLinkEvent>,
    /// What a node must prove to know.
    pub secret: Secret,
    /// The job's life; another one's roles are not welcome.
    pub run: String,
    /// The job as its roles read it.
    pub job: Arc<str>,
    /// What nodes fetch.
    pub files: JobFiles,
    /// Where shards are kept.
    pub shards: Shards,
    /// Who is joined.
    pub sessions: Sessions,
    /// Counts the streams.
    pub numbers: Arc<AtomicU64>,
}

type UpStream = Streaming<NodeMessage>;
type DownSender = mpsc::UnboundedSender<Result<LeaderMessage, Status>>;
type PartStream = ReceiverStream<Result<Part, Status>>;

fn say(down: &DownSender, body: Down) -> Result<(), Status> {
    let message = LeaderMessage { body: Some(body) };
    down.send(Ok(message))
        .map_err(|_| Status::cancelled("the node left"))
}

async fn next(up: &mut UpStream) -> Result<Up, Status> {
    let message = timeout(HANDSHAKE, up.message())
        .await
        .map_err(|_| Status::deadline_exceeded("the handshake takes too long"))??;
    message
        .and_then(|m| m.body)
        .ok_or_else(|| Status::invalid_argument("the stream ended within the handshake"))
}

impl From<ShardError> for Status {
    fn from(error: ShardError) -> Self {
        match error {
            ShardError::Io { .. } | ShardError::NoRoom { .. } => {
                Status::resource_exhausted(error.to_string())
            }
            // Asked again over the next link.
            ShardError::OnItsWay { .. } => Status::unavailable(error.to_string()),
            ShardError::Torn { .. }
            | ShardError::Outside { .. }
            | ShardError::Unexpected { .. } => Status::invalid_argument(error.to_string()),
        }
    }
}

impl NodeHostService {
    async fn serve(self, mut up: UpStream, down: DownSender, from: String) {
        let named = match self.shake_hands(&mut up, &down).await {
            Ok(named) => named,
            Err(status) => {
                tracing::warn!("a node from {from} was refused: {}", status.message());
                // It may have left by itself: then its reason is in its own log.
                return drop(down.send(Err(status)));
            }
        };
        let (handshake, proof) = named;
        // Before it is admitted: from then on it is watched, and it beats only once welcomed.
        let files = match self.files.list().await {
            Ok(files) => files,
            Err(error) => return drop(down.send(Err(Status::unavailable(error.to_string())))),
        };
        let link = LinkId(self.numbers.fetch_add(1, Ordering::Relaxed));
        let (orders, mut ordered) = mpsc::unbounded_channel();
        let name = handshake.name.clone();
        let joined = Joined {
            name,
            from,
            proof,
            link,
            orders,
        };
        if let Err(status) = self.admit(joined, &handshake).await {
            return drop(down.send(Err(status)));
        }
        let _session = self.sessions.open(handshake.session(), &handshake.name);
        let welcome = v1::NodeWelcome {
            job: self.job.to_string(),
            files,
        };
        let served = match say(&down, Down::Welcome(welcome)) {
            Ok(()) => self.relay(link, &mut up, &mut ordered, &down).await,
            Err(status) => Err(status),
        };
        if let Err(status) = served {
            tracing::info!("node {}: {}", handshake.name, status.message());
            // Whoever left needs no reason.
            let _ = down.send(Err(status));
        }
        // When the driver is gone there is nobody to tell.
        let _ = self.events.tell(NodeLinkEvent::Gone { link });
    }

    async fn shake_hands(
        &self,
        up: &mut UpStream,
        down: &DownSender,
    ) -> Result<(Handshake, v1::NodeProof), Status> {
        let Up::Hello(hello) = next(up).await? else {
            return Err(Status::invalid_argument("a node begins with hello"));
        };
        if hello.name.is_empty() || hello.name.len() > LONGEST_NAME {
            let text = format!("a node's name has 1 to {LONGEST_NAME} bytes");
            return Err(Status::invalid_argument(text));
        }
        let of_node = <[u8; NONCE_BYTES]>::try_from(hello.nonce)
            .map_err(|_| Status::invalid_argument("a nonce has 32 bytes"))?;
        let handshake = Handshake {
            secret: self.secret.clone(),
            name: hello.name,
            node: of_node,
            leader: nonce().map_err(|e| Status::internal(e.to_string()))?,
            run: self.run.clone(),
        };
        let challenge = v1::LeaderChallenge {
            nonce: handshake.leader.to_vec(),
            proof: handshake.proof(Side::Leader).to_vec(),
            run: self.run.clone(),
        };
        say(down, Down::Challenge(challenge))?;
        // A node may have to end roles of another job first.
        let proof = match next(up).await {
            Ok(Up::Proof(proof)) => proof,
            Ok(_) => return Err(Status::invalid_argument("after hello comes the proof")),
            Err(status) => {
                let text = format!(
                    "node `{}` gave no proof ({}): its token file may be another one",
                    handshake.name,
                    status.message()
                );
                return Err(Status::new(status.code(), text));
            }
        };
        if !handshake.proves(Side::Node, &proof.proof) {
            return Err(Status::unauthenticated(format!(
                "node `{}` does not know this job's token: give it the leader's with --token-file",
                handshake.name
            )));
        }
        if proof.identity.is_empty() || proof.identity.len() > LONGEST_NAME {
            return Err(Status::invalid_argument("the node's identity is missing"));
        }
        Ok((handshake, proof))
    }

    /// Whether the driver takes it.
    async fn admit(&self, joined: Joined, handshake: &Handshake) -> Result<(), Status> {
        let ending = || Status::unavailable("the leader is ending");
        let (admitted, answer) = oneshot::channel();
        let joined = Box::new(joined);
        self.events
            .tell(NodeLinkEvent::Joined { joined, admitted })
            .map_err(|_| ending())?;
        match answer.await.map_err(|_| ending())? {
            Ok(()) => Ok(()),
            Err(refused @ NodeRefused::Ending) => Err(Status::unavailable(refused.to_string())),
            Err(refused) => {
                tracing::warn!("node {} was refused: {refused}", handshake.name);
                Err(Status::failed_precondition(refused.to_string()))
            }
        }
    }

    /// Until either side leaves.
    async fn relay(
        &self,
        link: LinkId,
        up: &mut UpStream,
        ordered: &mut mpsc::UnboundedReceiver<LeaderMessage>,
        down: &DownSender,
    ) -> Result<(), Status> {
        loop {
            tokio::select! {
                said = up.message() => match said?.and_then(|m| m.body) {
                    Some(Up::Hello(_) | Up::Proof(_)) => {
                        return Err(Status::invalid_argument("the handshake is over"));
                    }
                    Some(body) => self.tell(link, body)?,
                    None => return Err(Status::cancelled("it closed its stream")),
                },
                order = ordered.recv() => match order {
                    Some(message) => {
                        let sent = down.send(Ok(message));
                        sent.map_err(|_| Status::cancelled("its stream is closed"))?;
                    }
                    None => return Err(Status::aborted("the leader let it go: join again")),
                },
            }
        }
    }

    fn tell(&self, link: LinkId, body: Up) -> Result<(), Status> {
        let body = Box::new(body);
        self.events
            .tell(NodeLinkEvent::Said { link, body })
            .map_err(|_| Status::unavailable("the leader is ending"))
    }
}

#[tonic::async_trait]
impl NodeHost for NodeHostService {
    type JoinStream = Pin<Box<dyn Stream<Item = Result<LeaderMessage, Status>> + Send>>;
    type ReadFileStream = PartStream;
    type ReadShardStream = Pin<Box<dyn Stream<Item = Result<v1::ShardPart, Status>> + Send>>;

    async fn join(
        &self,
        request: Request<Streaming<NodeMessage>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        let from = request.remote_addr().map_or_else(
            || "an unknown address".to_owned(),
            |a: SocketAddr| a.to_string(),
        );
        let (down, messages) = mpsc::unbounded_channel();
        tokio::spawn(self.clone().serve(request.into_inner(), down, from));
        let stream = UnboundedReceiverStream::new(messages).fuse();
        Ok(Response::new(Box::pin(stream)))
    }

    async fn read_file(
        &self,
        request: Request<v1::ReadFileRequest>,
    ) -> Result<Response<Self::ReadFileStream>, Status> {
        self.sessions.check(&request)?;
        let name = request.into_inner().name;
        let path = self
            .files
            .path(&name)
            .ok_or_else(|| Status::not_found(format!("the job has no file `{name}`")))?;
        Ok(Response::new(ReceiverStream::new(parts(path.to_owned()))))
    }

    async fn read_shard(
        &self,
        request: Request<v1::ReadShardRequest>,
    ) -> Result<Response<Self::ReadShardStream>, Status> {
        self.sessions.check(&request)?;
        let asked = request.into_inner();
        let path = self.shards.find(&asked.path)?;
        let taken = outgoing::taken(asked.step, asked.generation, asked.bytes);
        let parts = ReceiverStream::new(outgoing::parts_of(path, taken, None));
        let shards = self.shards.clone();
        let parts = parts.map(move |part| {
            // Remembered before it is sent: who reads it may tell of it at once.
            if let Ok(v1::ShardPart {
                xxh3: Some(xxh3), ..
            }) = &part
            {
                shards.was_read(&asked, *xxh3);
            }
            part
        });
        Ok(Response::new(Box::pin(parts)))
    }

    async fn keep_shard(
        &self,
        request: Request<Streaming<v1::ShardPart>>,
    ) -> Result<Response<v1::KeptShard>, Status> {
        let via = self.sessions.check(&request)?;
        let (path, xxh3) = self.keep(request.into_inner(), &via).await?;
        let path = path.display().to_string();
        Ok(Response::new(v1::KeptShard { path, xxh3 }))
    }

    async fn clock(
        &self,
        request: Request<v1::ClockRequest>,
    ) -> Result<Response<v1::ClockReply>, Status> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let us = now.unwrap_or_default().as_micros();
        let from = request
            .remote_addr()
            .map(|a: SocketAddr| a.ip().to_string());
        Ok(Response::new(v1::ClockReply {
            unix_us: u64::try_from(us).unwrap_or(u64::MAX),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seen_as: from.unwrap_or_default(),
        }))
    }
}

impl NodeHostService {
    async fn keep(
        &self,
        mut parts: Streaming<v1::ShardPart>,
        from: &Via,
    ) -> Result<(PathBuf, u64), Status> {
        let first = parts.message().await?.unwrap_or_default();
        let header = first
            .header
            .ok_or_else(|| Status::invalid_argument("a shard begins with its header"))?;
        let (sender, mut receiver) = mpsc::channel::<v1::ShardPart>(4);
        let mut keeping = self.shards.keep(header, &from.0).inspect_err(|error| {
            tracing::warn!("node {} is refused: {error}", from.0);
        })?;
        let writing = tokio::task::spawn_blocking(move || {
            let mut xxh3 = None;
            while let Some(part) = receiver.blocking_recv() {
                keeping.add(&part.data)?;
                xxh3 = part.xxh3;
            }
            keeping.finish(xxh3)
        });
        let mut part = v1::ShardPart {
            header: None,
            ..first
        };
        // A writer that failed says why below.
        while sender.send(part).await.is_ok() {
            match parts.message().await? {
                Some(next) => part = next,
                None => break,
            }
        }
        drop(sender);
        let kept = writing
            .await
            .map_err(|_| Status::internal("the writer ended"))?;
        Ok(kept?)
    }
}
