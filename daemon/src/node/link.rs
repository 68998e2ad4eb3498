//! The link to the leader: joined, and joined again after every break.
use super::files::{self, FilesError};
use super::{LinkEvent, NodeConfig, Standing, Upstream};
use crate::nodes::{
    HANDSHAKE, Handshake, KEEPALIVE, KEEPALIVE_TIMEOUT, NONCE_BYTES, Secret, Side, nonce,
};
use crate::state::StateDir;
use hyper_util::rt::TokioIo;
use robust_identity::{Caller, Unsealed, unsealed};
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_host_client::NodeHostClient;
use robust_proto::v1::node_message::Body as Up;
use robust_proto::v1::{self, LeaderMessage, NodeMessage};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Status, Streaming};

/// First and longest pause between two attempts.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
const CONNECT: Duration = Duration::from_secs(3);

const OTHER_TOKEN: &str = "it does not know this node's token: both need the same --token-file";
const NO_TLS: &str = "it speaks no TLS 1.3: is it the --listen-nodes of a robustd, of this build?";

/// Why a link is no more, or never was.
enum Broken {
    /// Tried again.
    Lost(String),
    /// Not by itself.
    Refused(String),
}

impl From<Status> for Broken {
    fn from(status: Status) -> Self {
        let text = status.message().to_owned();
        match status.code() {
            Code::Unauthenticated | Code::FailedPrecondition | Code::InvalidArgument => {
                Broken::Refused(text)
            }
            Code::Unimplemented => Broken::Refused("it is not listening for nodes there".into()),
            code => Broken::Lost(format!("{code:?}: {text}")),
        }
    }
}

impl From<tonic::transport::Error> for Broken {
    fn from(error: tonic::transport::Error) -> Self {
        match unsealed(&error) {
            Some(Unsealed::OtherToken) => return Broken::Refused(OTHER_TOKEN.to_owned()),
            Some(Unsealed::NoTls) => return Broken::Refused(NO_TLS.to_owned()),
            None => {}
        }
        let cause = std::error::Error::source(&error);
        Broken::Lost(cause.map_or_else(|| error.to_string(), ToString::to_string))
    }
}

impl From<FilesError> for Broken {
    fn from(error: FilesError) -> Self {
        Broken::Lost(error.to_string())
    }
}

/// Keeps the node joined until nobody listens to the events any more.
pub(super) async fn run(
    config: Arc<NodeConfig>,
    state: StateDir,
    secret: Secret,
    events: UnboundedSender<LinkEvent>,
) {
    let mut pause = PAUSE.0;
    loop {
        let mut link = Link {
            config: &config,
            state: &state,
            secret: &secret,
            events: &events,
            joined: false,
        };
        let Err(broken) = link.once().await else {
            return;
        };
        if link.joined {
            pause = PAUSE.0;
        }
        let event = match broken {
            Broken::Lost(reason) => LinkEvent::Lost { reason },
            Broken::Refused(reason) => LinkEvent::Refused { reason },
        };
        if events.send(event).is_err() {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}

/// Nobody listens to the events any more.
struct Unheard;

struct Link<'a> {
    config: &'a NodeConfig,
    state: &'a StateDir,
    secret: &'a Secret,
    events: &'a UnboundedSender<LinkEvent>,
    joined: bool,
}

type DownStream = Streaming<LeaderMessage>;

async fn next(down: &mut DownStream) -> Result<Down, Broken> {
    let message = down.message().await?;
    let ended = || Broken::Lost("the leader ended the stream".into());
    message.and_then(|m| m.body).ok_or_else(ended)
}

fn message(body: Up) -> NodeMessage {
    NodeMessage { body: Some(body) }
}

impl Link<'_> {
    /// One link, from the connection to its break. Ends well only when nobody listens any more.
    async fn once(&mut self) -> Result<(), Broken> {
        match self.talk().await {
            Ok(Unheard) => Ok(()),
            Err(broken) => Err(broken),
        }
    }

    async fn talk(&mut self) -> Result<Unheard, Broken> {
        let caller = self.secret.daemons();
        let caller =
            caller.and_then(|daemons| daemons.caller(&format!("node/{}", self.config.name)));
        let caller = caller.map_err(|error| Broken::Refused(error.to_string()))?;
        let way = Way::new(&self.config.leader, caller);
        let endpoint = endpoint(&way.leader)?;
        let channel = endpoint.connect_with_connector(way.connector()).await?;
        let here = way.here();
        let bulk = endpoint.connect_with_connector_lazy(way.connector());
        let (up, outgoing) = unbounded_channel();
        let mut handshake = Handshake {
            secret: self.secret.clone(),
            name: self.config.name.clone(),
            node: nonce().map_err(|e| Broken::Lost(e.to_string()))?,
            leader: [0; NONCE_BYTES],
            run: String::new(),
        };
        let advertise = self.config.advertise.unwrap_or(here);
        let shaken = self.shake_hands(&channel, &up, outgoing, &mut handshake, advertise);
        let Some(mut down) = shaken.await? else {
            return Ok(Unheard);
        };
        let Down::Welcome(welcome) = next(&mut down).await? else {
            return Err(Broken::Refused("its second message is no welcome".into()));
        };
        self.joined = true;
        let session = handshake.session().parse();
        let upstream = Upstream {
            channel,
            bulk,
            // Hexadecimal digits always are a header's value.
            session: session.map_err(|_| Broken::Lost("the session's key".into()))?,
        };
        let joined = LinkEvent::Joined {
            up,
            upstream: upstream.clone(),
            advertise,
        };
        if self.events.send(joined).is_err() {
            return Ok(Unheard);
        }
        let job = Box::new(files::fetch(self.state, &upstream, &welcome).await?);
        if self.events.send(LinkEvent::Ready { job }).is_err() {
            return Ok(Unheard);
        }
        loop {
            let order = next(&mut down).await?;
            if self.events.send(LinkEvent::Order(order)).is_err() {
                return Ok(Unheard);
            }
        }
    }

    /// Until the leader has this node's proof; none when nobody listens any more.
    async fn shake_hands(
        &self,
        channel: &Channel,
        up: &UnboundedSender<NodeMessage>,
        outgoing: UnboundedReceiver<NodeMessage>,
        handshake: &mut Handshake,
        advertise: IpAddr,
    ) -> Result<Option<DownStream>, Broken> {
        let hello = v1::NodeHello {
            name: handshake.name.clone(),
            nonce: handshake.node.to_vec(),
        };
        // The stream's other end is in hand: it takes everything.
        let _ = up.send(message(Up::Hello(hello)));
        let mut client = NodeHostClient::new(channel.clone());
        let joining = client.join(UnboundedReceiverStream::new(outgoing));
        let slow = |_| Broken::Lost("the leader does not answer".into());
        let mut down = timeout(HANDSHAKE, joining)
            .await
            .map_err(slow)??
            .into_inner();
        let first = timeout(HANDSHAKE, next(&mut down)).await.map_err(slow)??;
        let Down::Challenge(challenge) = first else {
            return Err(Broken::Refused("its first message is no challenge".into()));
        };
        handshake.leader = <[u8; NONCE_BYTES]>::try_from(challenge.nonce)
            .map_err(|_| Broken::Refused("its nonce has not 32 bytes".into()))?;
        handshake.run = challenge.run;
        if !handshake.proves(Side::Leader, &challenge.proof) {
            return Err(Broken::Refused(OTHER_TOKEN.to_owned()));
        }
        let (answer, standing) = oneshot::channel();
        let run = handshake.run.clone();
        let asked = self.events.send(LinkEvent::Challenged { run, answer });
        let (Ok(()), Ok(standing)) = (asked, standing.await) else {
            return Ok(None);
        };
        let proof = self.proof(handshake, standing, advertise);
        let _ = up.send(message(Up::Proof(proof)));
        Ok(Some(down))
    }

    fn proof(&self, handshake: &Handshake, standing: Standing, at: IpAddr) -> v1::NodeProof {
        let config = self.config;
        v1::NodeProof {
            proof: handshake.proof(Side::Node).to_vec(),
            identity: standing.identity,
            advertise: at.to_string(),
            dc: config.dc.clone(),
            rack: config.rack.clone(),
            accel: config.accel.clone(),
            pools: config.pools.clone().into_iter().collect(),
            running: standing.running,
            ended: standing.ended,
            held: standing.held,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

fn endpoint(leader: &str) -> Result<Endpoint, Broken> {
    let uri = format!("http://{leader}");
    let endpoint = Endpoint::from_shared(uri).map_err(|e| Broken::Refused(e.to_string()))?;
    Ok(endpoint
        .connect_timeout(CONNECT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true))
}

/// How the leader is reached.
struct Way {
    leader: String,
    caller: Caller,
    /// From which of this machine's addresses.
    here: Arc<Mutex<IpAddr>>,
}

impl Way {
    fn new(leader: &str, caller: Caller) -> Self {
        Self {
            leader: leader.to_owned(),
            caller,
            here: Arc::new(Mutex::new(IpAddr::V4(Ipv4Addr::LOCALHOST))),
        }
    }

    /// Makes connections on which both have proven themselves.
    fn connector(
        &self,
    ) -> impl tower::Service<
        Uri,
        Response = TokioIo<TlsStream<TcpStream>>,
        Error = io::Error,
        Future = impl Future<Output = io::Result<TokioIo<TlsStream<TcpStream>>>> + Send + use<>,
    > + Send
    + use<> {
        let (to, caller, seen) = (
            self.leader.clone(),
            self.caller.clone(),
            Arc::clone(&self.here),
        );
        tower::service_fn(move |_: Uri| {
            let (to, caller, seen) = (to.clone(), caller.clone(), Arc::clone(&seen));
            async move {
                let stream = TcpStream::connect(to).await?;
                stream.set_nodelay(true)?;
                *seen.lock().unwrap_or_else(PoisonError::into_inner) = stream.local_addr()?.ip();
                let slow = |_| io::Error::new(io::ErrorKind::TimedOut, "it does not answer TLS");
                let sealed = timeout(HANDSHAKE, caller.call(stream))
                    .await
                    .map_err(slow)??;
                Ok(TokioIo::new(sealed))
            }
        })
    }

    fn here(&self) -> IpAddr {
        let here = *self.here.lock().unwrap_or_else(PoisonError::into_inner);
        here.to_canonical()
    }
}
