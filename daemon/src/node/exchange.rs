//! What nodes give to each other, beside the leader: shards of snapshots that are in their memory.
//!
//! ```text
//!  leader ── the welcome: a certificate ──► Exchange, which listens where the roles here do; the node's standing says where
//!
//!  node c ── TLS 1.3, both certified as nodes ── ReadHeld ──► a copy, or the slot of a rank that runs here ──► its parts
//!                                                                 └─ of a slot: its digests, to the leader
//! ```
//! A leader of an earlier build gives no certificate: without one nobody is answered, and shards go through the leader.
use super::held::Held;
use crate::known::Known;
use crate::nodes::{parts_noted, proven_connections, taken};
use hyper_util::rt::TokioIo;
use robust_identity::{Between, IdentityError};
use robust_proto::v1;
use robust_proto::v1::node_message::Body as Up;
use robust_proto::v1::shard_host_client::ShardHostClient;
use robust_proto::v1::shard_host_server::{ShardHost, ShardHostServer};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Endpoint, Server, Uri};
use tonic::{Request, Response, Status, Streaming};

/// Shards that are read from here at a time; whoever asks for more waits.
const READS: usize = 16;
/// Calls of one connection at a time.
const CALLS: u32 = 16;
/// Bytes of the headers of one call.
const HEADER_BYTES: u32 = 8 << 10;
/// What is told again to the next leader: two steps of a node's ranks, and more.
const SENT: usize = 64;
/// How long another node may take to be reached and to prove itself.
const REACHED: Duration = Duration::from_secs(5);
/// How long a reader may take nothing.
const STILL: Duration = Duration::from_secs(30);
/// How long a giver may give nothing, who may have others to give to first.
const TURN: Duration = Duration::from_secs(60);

/// See the module's doc. Clones are one and the same.
#[derive(Clone, Debug)]
pub(super) struct Exchange(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// This node's name.
    name: String,
    held: Held,
    reads: Arc<Semaphore>,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    /// Nobody is answered, and nobody called, without.
    between: Option<Between>,
    listening: Option<Listening>,
    /// The way to the leader, while the node is joined.
    up: Option<mpsc::UnboundedSender<v1::NodeMessage>>,
    /// What leaders were told, or should have been, of slots that others read here, the newest last.
    sent: VecDeque<v1::ShardSent>,
}

#[derive(Debug)]
struct Listening {
    at: SocketAddr,
    serving: JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Exchange {
    /// Of the node of this name, which has those shards.
    pub fn new(name: String, held: Held) -> Self {
        Self(Arc::new(Inner {
            name,
            held,
            reads: Arc::new(Semaphore::new(READS)),
            now: Mutex::default(),
        }))
    }

    /// This node's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Listens at this address, if it does not already; none where that cannot be.
    pub fn listen(&self, at: IpAddr) -> Option<SocketAddr> {
        let mut now = self.lock();
        if let Some(there) = now.listening.as_ref().filter(|l| l.at.ip() == at) {
            return Some(there.at);
        }
        now.listening = None;
        let listening = bind(at).map(|(listener, at)| {
            let exchange = self.clone();
            let serving = tokio::spawn(exchange.serve(listener));
            Listening { at, serving }
        });
        match listening {
            Ok(listening) => {
                let at = listening.at;
                now.listening = Some(listening);
                Some(at)
            }
            Err(error) => {
                tracing::warn!(
                    "other nodes cannot read shards at {at}: {error}; they go through the leader"
                );
                None
            }
        }
    }

    /// Is this to other nodes from now on.
    pub fn identify(&self, pem: &str) -> Result<(), IdentityError> {
        let mut now = self.lock();
        match &now.between {
            Some(between) => between.renew(pem),
            None => {
                now.between = Some(Between::from_pem(pem)?);
                Ok(())
            }
        }
    }

    /// The way to the leader; none while it is away. It may be another one, and whoever reads a copy that is there already
    /// does not read here again: it hears what was told of the slots that are still here.
    pub fn tell_over(&self, up: Option<mpsc::UnboundedSender<v1::NodeMessage>>) {
        // Read before the lock is taken, which readers of shards wait for.
        let here = up.as_ref().map(|_| self.0.held.list());
        let mut now = self.lock();
        if let Some((up, here)) = up.as_ref().zip(here) {
            now.sent.retain(|sent| {
                let shard = sent.shard.as_ref();
                shard.is_some_and(|shard| here.iter().any(|there| is_of(there, shard)))
            });
            for sent in &now.sent {
                tell(up, sent.clone());
            }
        }
        now.up = up;
    }

    /// A shard from the memory of the node at that place.
    pub async fn read(
        &self,
        place: &v1::ShardPlace,
        wanted: &v1::HeldShard,
    ) -> Result<Streaming<v1::ShardPart>, Status> {
        let between = self.between()?;
        let unreachable = |why: String| {
            Status::unavailable(format!("node {} at {}: {why}", place.node, place.address))
        };
        let (node, address) = (place.node.clone(), place.address.clone());
        let connector = tower::service_fn(move |_: Uri| {
            let (between, node, address) = (between.clone(), node.clone(), address.clone());
            async move {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                let sealed = between.call(&node, stream).await?;
                Ok::<_, io::Error>(TokioIo::new(sealed))
            }
        });
        let endpoint = Endpoint::from_shared(format!("http://{}", place.address));
        let endpoint = endpoint.map_err(|e| unreachable(e.to_string()))?;
        let reading = async {
            let channel = endpoint.connect_with_connector(connector).await;
            let channel = channel.map_err(|e| {
                let cause = std::error::Error::source(&e);
                unreachable(cause.map_or_else(|| e.to_string(), ToString::to_string))
            })?;
            let mut client = ShardHostClient::new(channel)
                .max_decoding_message_size(crate::grpc::MAX_MESSAGE_BYTES);
            client.read_held(*wanted).await
        };
        let reached = timeout(REACHED, reading).await;
        let reached = reached.map_err(|_| unreachable("it does not answer".to_owned()))?;
        reached.map(Response::into_inner)
    }

    /// The next part of a shard, of a giver who is not stuck. It may have others to give to first.
    pub async fn next(
        parts: &mut Streaming<v1::ShardPart>,
    ) -> Result<Option<v1::ShardPart>, Status> {
        let still = |_| Status::unavailable(format!("nothing came for {} s", TURN.as_secs()));
        timeout(TURN, parts.message()).await.map_err(still)?
    }

    fn between(&self) -> Result<Between, Status> {
        let between = self.lock().between.clone();
        between.ok_or_else(|| Status::unavailable("this node has no certificate for other nodes"))
    }

    async fn serve(self, listener: TcpListener) {
        let incoming = proven_connections(
            listener,
            {
                let exchange = self.clone();
                move |stream| exchange.clone().answer(stream)
            },
            |from, error| format!("a connection from {from} to read shards was refused: {error}"),
        );
        let serving = Server::builder()
            .max_concurrent_streams(CALLS)
            .http2_max_header_list_size(HEADER_BYTES)
            .add_service(ShardHostServer::new(self))
            .serve_with_incoming(incoming);
        if let Err(error) = serving.await {
            tracing::error!("other nodes cannot read shards from here any more: {error}");
        }
    }

    async fn answer(self, stream: TcpStream) -> io::Result<Known<impl Sealed, String>> {
        stream.set_nodelay(true)?;
        let between = self.between().map_err(io::Error::other)?;
        let (name, stream) = between.answer(stream).await?;
        Ok(Known::new(stream, name))
    }

    /// The leader is told what a rank's slot has: copies of it are known by that.
    fn sent(&self, shard: v1::HeldShard, blake3: [u8; 32]) {
        let sent = v1::ShardSent {
            shard: Some(shard),
            blake3: blake3.to_vec(),
        };
        let mut now = self.lock();
        if let Some(up) = &now.up {
            tell(up, sent.clone());
        }
        if !now.sent.contains(&sent) {
            now.sent.push_back(sent);
        }
        if now.sent.len() > SENT {
            now.sent.pop_front();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        // What is in it is replaced as a whole.
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether both are the same rank's shard of the same step.
fn is_of(a: &v1::HeldShard, b: &v1::HeldShard) -> bool {
    (a.step, a.generation, a.rank, a.bytes) == (b.step, b.generation, b.rank, b.bytes)
}

fn tell(up: &mpsc::UnboundedSender<v1::NodeMessage>, sent: v1::ShardSent) {
    let body = Some(Up::Sent(sent));
    // Over a link that broke it is not told: the next leader hears it.
    let _ = up.send(v1::NodeMessage { body });
}

/// A connection on which both have proven themselves.
trait Sealed: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static> Sealed for T {}

fn bind(at: IpAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = std::net::TcpListener::bind((at, 0))?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    Ok((TcpListener::from_std(listener)?, at))
}

#[tonic::async_trait]
impl ShardHost for Exchange {
    type ReadHeldStream = ReceiverStream<Result<v1::ShardPart, Status>>;

    async fn read_held(
        &self,
        request: Request<v1::HeldShard>,
    ) -> Result<Response<Self::ReadHeldStream>, Status> {
        let wanted = request.into_inner();
        let gone = || Status::not_found("it is not here any more");
        let (held, path) = self.0.held.find(&wanted).ok_or_else(gone)?;
        let exchange = self.clone();
        let note = move |digests: crate::nodes::ShardDigests| {
            if held.xxh3.is_none() {
                let xxh3 = Some(digests.xxh3);
                exchange.sent(v1::HeldShard { xxh3, ..held }, digests.blake3);
            }
        };
        let (sender, receiver) = mpsc::channel(1);
        let places = Arc::clone(&self.0.reads);
        tokio::spawn(async move {
            // Whoever asked is answered already, and waits for its turn.
            let Ok(place) = places.acquire_owned().await else {
                return;
            };
            let taken = taken(held.step, held.generation, held.bytes);
            give(parts_noted(path, taken, note), sender, STILL, place).await;
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Hands on what comes, for as long as the reader takes it: one that takes nothing for so long gets no more, and gives its
/// place to the next.
async fn give<T>(
    mut parts: mpsc::Receiver<T>,
    to: mpsc::Sender<T>,
    still: Duration,
    _place: OwnedSemaphorePermit,
) {
    while let Some(part) = parts.recv().await {
        if !matches!(timeout(still, to.send(part)).await, Ok(Ok(()))) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::nodes::PATIENCE;
    use robust_ckpt::slot::{Slot, SnapshotMemory};
    use robust_identity::{Authority, Term};
    use robust_shared::ids::{Generation, Step};
    use std::net::Ipv4Addr;
    use std::path::Path;
    use tokio::io::AsyncReadExt;
    use tokio::time::Instant;
    use xxhash_rust::xxh3::xxh3_64;

    const IMAGE: &[u8] = b"all that rank 1 knows";

    /// A node whose rank 1 has taken a snapshot at step 4, as gang 2.
    fn node(folder: &Path, name: &str, whose: &str) -> Exchange {
        let mut slot = Slot::open(&folder.join("trainer-1.slot0"), IMAGE.len() as u64).unwrap();
        let image: &dyn SnapshotMemory = &IMAGE;
        slot.write((Step(4), Generation(2)), 4, &[image]).unwrap();
        let exchange = Exchange::new(name.to_owned(), Held::new(folder.to_owned()));
        let authority = Authority::of(b"secret", "demo").unwrap();
        let pem = authority.issue(whose, Term::unbounded()).unwrap();
        exchange.identify(&pem).unwrap();
        exchange
    }

    fn wanted(step: u64) -> v1::HeldShard {
        v1::HeldShard {
            step,
            generation: 2,
            rank: 1,
            bytes: IMAGE.len() as u64,
            xxh3: None,
        }
    }

    fn place(node: &str, at: SocketAddr) -> v1::ShardPlace {
        v1::ShardPlace {
            node: node.to_owned(),
            address: at.to_string(),
        }
    }

    async fn whole(mut parts: Streaming<v1::ShardPart>) -> Vec<u8> {
        let mut data = Vec::new();
        while let Some(part) = Exchange::next(&mut parts).await.unwrap() {
            data.extend(part.data);
        }
        data
    }

    #[tokio::test]
    async fn a_node_reads_another_ones_slot_and_the_leader_hears_what_that_has() {
        let temp = tempfile::tempdir().unwrap();
        let b = node(temp.path(), "b", "node/b");
        let other = tempfile::tempdir().unwrap();
        let c = node(other.path(), "c", "node/c");
        let (up, mut told) = mpsc::unbounded_channel();
        b.tell_over(Some(up));
        let at = b.listen(Ipv4Addr::LOCALHOST.into()).unwrap();
        assert_eq!(
            b.listen(Ipv4Addr::LOCALHOST.into()),
            Some(at),
            "it listens already"
        );
        let parts = c.read(&place("b", at), &wanted(4)).await.unwrap();
        assert_eq!(whole(parts).await, IMAGE);
        let xxh3 = Some(xxh3_64(IMAGE));
        let sent = Up::Sent(v1::ShardSent {
            shard: Some(v1::HeldShard { xxh3, ..wanted(4) }),
            blake3: blake3::hash(IMAGE).as_bytes().to_vec(),
        });
        let again = sent.clone();
        assert_eq!(told.recv().await.unwrap().body, Some(sent));
        // Another controller leads: what the slot has is told again, until a later step is in it.
        b.tell_over(None);
        let (up, mut told) = mpsc::unbounded_channel();
        b.tell_over(Some(up));
        assert_eq!(told.recv().await.unwrap().body, Some(again));
        let mut slot =
            Slot::open(&temp.path().join("trainer-1.slot0"), IMAGE.len() as u64).unwrap();
        slot.write(
            (Step(6), Generation(2)),
            4,
            &[&IMAGE as &dyn SnapshotMemory],
        )
        .unwrap();
        let (up, mut told) = mpsc::unbounded_channel();
        b.tell_over(Some(up));
        assert!(told.try_recv().is_err(), "it is not here any more");
        let gone = c.read(&place("b", at), &wanted(3)).await.unwrap_err();
        assert_eq!(gone.code(), tonic::Code::NotFound);
        let another = c.read(&place("d", at), &wanted(4)).await.unwrap_err();
        assert!(another.message().contains("node b answers"), "{another}");
    }

    #[tokio::test]
    async fn a_role_of_the_job_reads_no_shard_from_a_node() {
        let temp = tempfile::tempdir().unwrap();
        let b = node(temp.path(), "b", "node/b");
        let at = b.listen(Ipv4Addr::LOCALHOST.into()).unwrap();
        let other = tempfile::tempdir().unwrap();
        let role = node(other.path(), "c", "role/17");
        assert!(role.read(&place("b", at), &wanted(4)).await.is_err());
    }

    #[tokio::test]
    async fn who_proves_nothing_to_a_node_is_not_waited_for() {
        let temp = tempfile::tempdir().unwrap();
        let b = node(temp.path(), "b", "node/b");
        let at = b.listen(Ipv4Addr::LOCALHOST.into()).unwrap();
        let mut silent = TcpStream::connect(at).await.unwrap();
        let before = Instant::now();
        let ended = timeout(PATIENCE * 10, silent.read_u8()).await;
        assert!(ended.unwrap().is_err(), "it is closed");
        assert!(before.elapsed() >= PATIENCE / 2);
    }

    #[tokio::test]
    async fn a_reader_of_a_shard_that_takes_nothing_gives_its_place_to_the_next() {
        let places = Arc::new(Semaphore::new(1));
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        let (parts, given) = mpsc::channel(4);
        let (to, _reader) = mpsc::channel(1);
        for part in 0..3 {
            parts.send(part).await.unwrap();
        }
        assert!(places.try_acquire().is_err());
        give(given, to, Duration::from_millis(20), place).await;
        assert!(places.try_acquire().is_ok());
    }
}
