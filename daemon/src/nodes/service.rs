//! The leader's service for nodes.
use super::authority::JobToken;
use super::members::{LONGEST_NAME, Members, MembersError};
use super::proven::{Proven, TokenId};
use super::sealed::Peer;
use super::sessions::{OpenSession, Sessions};
use super::shards::{ShardError, Shards};
use super::{HANDSHAKE, NodeLinkEvent, NodeRefused, outgoing, unix_ms};
use crate::files::{JobFiles, parts};
use crate::links::{LinkId, Via};
use crate::store::Store;
use crate::tell::Tell;
use robust_identity::{Fingerprint, NodeCertificate};
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_host_server::NodeHost;
use robust_proto::v1::node_message::Body as Up;
use robust_proto::v1::{self, LeaderMessage, NodeMessage, Part};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

/// The way to a node, in order.
pub type Orders = mpsc::UnboundedSender<v1::LeaderMessage>;
/// Between two signs of life of a leader among several.
const BEAT: Duration = Duration::from_millis(250);
/// What a node hears that was one.
const TAKEN_BACK: &str =
    "this node's certificate was taken back, or another machine was enrolled under its name";

/// A node that proved itself and wants to be admitted.
#[derive(Debug)]
pub struct Joined {
    /// Its name.
    pub name: String,
    /// Where its connection comes from.
    pub from: String,
    /// What it has.
    pub standing: v1::NodeStanding,
    /// Names this stream; a node that joins again gets a new one.
    pub link: LinkId,
    /// The way to it.
    pub orders: Orders,
}

/// The service that nodes join. Everything it hears goes to the driver.
#[derive(Clone)]
pub struct NodeHostService {
    /// The way to the driver.
    pub events: Tell<NodeLinkEvent>,
    /// Who may become a node, and who did.
    pub members: Members,
    /// What the job's roles prove to each other, on nodes too.
    pub roles_token: JobToken,
    /// The job's life; another one's roles are not welcome.
    pub run: String,
    /// The term that it leads in, of several controllers; 0: there are no others.
    pub epoch: u64,
    /// The job as its roles read it.
    pub job: Arc<str>,
    /// What nodes fetch.
    pub files: JobFiles,
    /// Whoever goes on with its log has to know who is a node.
    pub store: Store,
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
        .map_err(|_| Status::deadline_exceeded("what the node has to say takes too long"))??;
    message.and_then(|m| m.body).ok_or_else(|| {
        Status::invalid_argument("the stream ended before the node said what it has")
    })
}

impl From<ShardError> for Status {
    fn from(error: ShardError) -> Self {
        match error {
            ShardError::Io { .. } | ShardError::NoRoom { .. } => {
                Status::resource_exhausted(error.to_string())
            }
            // Asked again over the next link.
            ShardError::OnItsWay { .. } => Status::unavailable(error.to_string()),
            ShardError::Torn { .. } | ShardError::Outside { .. } => {
                Status::invalid_argument(error.to_string())
            }
            // Whoever wanted it is gone: it says nothing of the shard.
            ShardError::Unexpected { .. } => Status::failed_precondition(error.to_string()),
        }
    }
}

impl From<MembersError> for Status {
    fn from(error: MembersError) -> Self {
        let text = error.to_string();
        match error {
            MembersError::NoToken | MembersError::Used => Status::unauthenticated(text),
            MembersError::ForAnother { .. } | MembersError::Taken { .. } => {
                Status::failed_precondition(text)
            }
            MembersError::Unknown { .. } => Status::not_found(text),
            MembersError::Bounds(_) | MembersError::Identity(_) => Status::invalid_argument(text),
            MembersError::State(_) | MembersError::Unreadable { .. } | MembersError::Random(_) => {
                Status::internal(text)
            }
        }
    }
}

/// Who makes a request; every connection of [`super::sealed()`] knows it.
fn peer<T>(request: &Request<T>) -> Result<Peer, Status> {
    let peer = request.extensions().get::<Peer>().cloned();
    peer.ok_or_else(|| Status::unauthenticated("nobody knows who calls"))
}

/// A name as it may be shown and kept.
fn named(name: &str) -> Result<(), Status> {
    match (1..=LONGEST_NAME).contains(&name.len()) {
        true => Ok(()),
        false => {
            let text = format!("a node's name has 1 to {LONGEST_NAME} bytes");
            Err(Status::invalid_argument(text))
        }
    }
}

impl NodeHostService {
    async fn serve(self, mut up: UpStream, down: DownSender, (name, from): (String, String)) {
        let mut standing = match self.greet(&mut up, &down).await {
            Ok(standing) => standing,
            Err(status) => {
                tracing::warn!("node {name} from {from} was refused: {}", status.message());
                // It may have left by itself: then its reason is in its own log.
                return drop(down.send(Err(status)));
            }
        };
        // Before it is admitted: from then on it is watched, and it beats only once welcomed.
        let files = match self.files.list().await {
            Ok(files) => files,
            Err(error) => return drop(down.send(Err(Status::unavailable(error.to_string())))),
        };
        let mut session = match self.sessions.open(&name) {
            Ok(session) => session,
            Err(error) => return drop(down.send(Err(Status::unavailable(error.to_string())))),
        };
        let link = LinkId(self.numbers.fetch_add(1, Ordering::Relaxed));
        let (orders, mut ordered) = mpsc::unbounded_channel();
        // Where there is nobody else to go to, silence says nothing.
        let beats = standing.hears_beats && self.epoch > 0;
        let identity = self.among_nodes(&name, &mut standing);
        let joined = Joined {
            name: name.clone(),
            from,
            standing,
            link,
            orders,
        };
        if let Err(status) = self.admit(joined, &name).await {
            return drop(down.send(Err(status)));
        }
        let welcome = v1::NodeWelcome {
            job: self.job.to_string(),
            files,
            session: session.key().to_owned(),
            roles_token: self.roles_token.reveal().to_owned(),
            identity,
        };
        let served = match say(&down, Down::Welcome(welcome)) {
            Ok(()) => {
                let ways = (&mut up, &mut ordered, &down);
                let relayed = self.relay(link, ways, &mut session, beats);
                relayed.await
            }
            Err(status) => Err(status),
        };
        if let Err(status) = served {
            tracing::info!("node {name}: {}", status.message());
            // Whoever left needs no reason.
            let _ = down.send(Err(status));
        }
        // When the driver is gone there is nobody to tell.
        let _ = self.events.tell(NodeLinkEvent::Gone { link });
    }

    /// By what other nodes know this one; nothing where it gives them nothing.
    fn among_nodes(&self, name: &str, standing: &mut v1::NodeStanding) -> String {
        let at = standing.shards.parse::<SocketAddr>().ok();
        // Where its roles are reached, and nowhere else: others connect to it.
        let is_its = at.is_some_and(|at| standing.advertise.parse() == Ok(at.ip()));
        if !is_its {
            standing.shards.clear();
            return String::new();
        }
        let made = self.members.certify_among_nodes(name, unix_ms());
        made.unwrap_or_else(|error| {
            standing.shards.clear();
            tracing::warn!("shards of {name} go through this leader: it has no certificate for other nodes: {error}");
            String::new()
        })
    }

    /// Says which life of the job this is, and hears what the node has.
    async fn greet(
        &self,
        up: &mut UpStream,
        down: &DownSender,
    ) -> Result<v1::NodeStanding, Status> {
        let (run, epoch) = (self.run.clone(), self.epoch);
        say(down, Down::Greeting(v1::LeaderGreeting { run, epoch }))?;
        // A node may have to end roles of another job first.
        let Up::Standing(standing) = next(up).await? else {
            return Err(Status::invalid_argument("a node begins with what it has"));
        };
        match standing.identity.is_empty() || standing.identity.len() > LONGEST_NAME {
            true => Err(Status::invalid_argument("the node's identity is missing")),
            false => Ok(standing),
        }
    }

    /// Whether the driver takes it.
    async fn admit(&self, joined: Joined, name: &str) -> Result<(), Status> {
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
                tracing::warn!("node {name} was refused: {refused}");
                Err(Status::failed_precondition(refused.to_string()))
            }
        }
    }

    /// Until either side leaves.
    async fn relay(
        &self,
        link: LinkId,
        (up, ordered, down): (
            &mut UpStream,
            &mut mpsc::UnboundedReceiver<LeaderMessage>,
            &DownSender,
        ),
        session: &mut OpenSession,
        beats: bool,
    ) -> Result<(), Status> {
        let mut ticks = interval(BEAT);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick(), if beats => say(down, Down::Beat(v1::LeaderBeat {}))?,
                () = session.closed() => {
                    return Err(Status::unauthenticated(TAKEN_BACK));
                }
                said = up.message() => match said?.and_then(|m| m.body) {
                    Some(Up::Standing(_)) => {
                        return Err(Status::invalid_argument("it has said what it has"));
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
        let peer = peer(&request)?;
        let from = peer.address();
        let from = from.map_or_else(|| "an unknown address".to_owned(), |a| a.to_string());
        let now = peer.proven_now(&self.members);
        let name = match (&peer.proven, now) {
            (Proven::Node(name), now) if now == peer.proven => name.clone(),
            (Proven::Node(_) | Proven::Refused(_), Proven::Refused(why)) => {
                tracing::warn!("a node from {from} is refused: {why}");
                return Err(Status::unauthenticated(why));
            }
            (Proven::Holder(_), _) => {
                return Err(Status::unauthenticated(
                    "a join token makes a node, and is none: enroll first",
                ));
            }
            _ => return Err(Status::unauthenticated(TAKEN_BACK)),
        };
        if let Some(shown) = peer.shown.filter(|_| peer.is_from_outside()) {
            tracing::info!("node {name} comes with a certificate from outside: {shown}");
        }
        let (down, messages) = mpsc::unbounded_channel();
        let serving = self.clone();
        tokio::spawn(serving.serve(request.into_inner(), down, (name, from)));
        let stream = UnboundedReceiverStream::new(messages).fuse();
        Ok(Response::new(Box::pin(stream)))
    }

    async fn enroll(
        &self,
        request: Request<v1::EnrollRequest>,
    ) -> Result<Response<v1::EnrollReply>, Status> {
        let peer = peer(&request)?;
        let asked = request.into_inner();
        named(&asked.name)?;
        let certificate = match (peer.proven, peer.shown) {
            (Proven::Holder(token), _) => self.certify(token, asked).await?,
            (Proven::Node(name), Some(shown)) if name == asked.name => {
                self.renew(shown, asked).await?
            }
            _ => return Err(Status::unauthenticated("only a join token makes a node")),
        };
        // Another controller goes on with what the log has.
        let kept = self.store.sync().await;
        kept.map_err(|e| Status::unavailable(e.to_string()))?;
        Ok(Response::new(v1::EnrollReply {
            certificates: certificate.pem,
            since_ms: certificate.since_ms,
            until_ms: certificate.until_ms,
        }))
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
        let shards = self.shards.clone();
        let note = move |digests| shards.was_read(&asked, digests);
        let parts = outgoing::parts_noted(path, taken, note);
        Ok(Response::new(Box::pin(ReceiverStream::new(parts))))
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

    async fn find_shard(
        &self,
        request: Request<v1::HeldShard>,
    ) -> Result<Response<v1::ShardPlaces>, Status> {
        self.sessions.check(&request)?;
        Ok(Response::new(self.shards.places().find(request.get_ref())))
    }

    async fn clock(
        &self,
        request: Request<v1::ClockRequest>,
    ) -> Result<Response<v1::ClockReply>, Status> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let us = now.unwrap_or_default().as_micros();
        let from = peer(&request)?.address().map(|a| a.ip().to_string());
        Ok(Response::new(v1::ClockReply {
            unix_us: u64::try_from(us).unwrap_or(u64::MAX),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            seen_as: from.unwrap_or_default(),
        }))
    }
}

impl NodeHostService {
    /// Gives a node another certificate, before the one that it has is over.
    async fn renew(
        &self,
        shown: Fingerprint,
        asked: v1::EnrollRequest,
    ) -> Result<NodeCertificate, Status> {
        let (members, name) = (self.members.clone(), asked.name.clone());
        let renewing = tokio::task::spawn_blocking(move || {
            members.renew(shown, (&asked.name, &asked.public_key), unix_ms())
        });
        let renewed = renewing.await;
        let renewed = renewed.map_err(|_| Status::internal("certifying it ended"))?;
        match &renewed {
            Ok(_) => tracing::info!("node {name} has a new certificate"),
            Err(error) => tracing::warn!("node {name} gets no new certificate: {error}"),
        }
        Ok(renewed?)
    }

    async fn certify(
        &self,
        token: TokenId,
        asked: v1::EnrollRequest,
    ) -> Result<NodeCertificate, Status> {
        let joined = self.sessions.has(&asked.name);
        let (members, name) = (self.members.clone(), asked.name.clone());
        // It is on disk before it is answered.
        let enrolling = tokio::task::spawn_blocking(move || {
            members.enroll(&token, (&asked.name, &asked.public_key), joined, unix_ms())
        });
        let enrolled = enrolling.await;
        let enrolled = enrolled.map_err(|_| Status::internal("certifying it ended"))?;
        match &enrolled {
            Ok(_) => {
                tracing::info!("node {name} has a certificate from now on");
                // Whoever had the name before is not that node any more.
                self.sessions.close(&name);
            }
            Err(error) => tracing::warn!("node {name} gets no certificate: {error}"),
        }
        Ok(enrolled?)
    }

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
