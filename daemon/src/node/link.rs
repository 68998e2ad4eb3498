//! The link to the leader: joined, and joined again after every break.
use super::credentials::{Credentials, CredentialsError};
use super::exchange::Exchange;
use super::files::{self, FilesError};
use super::way::Way;
use super::{LinkEvent, NodeConfig, Standing, Upstream};
use crate::nodes::{HANDSHAKE, JobToken};
use crate::state::StateDir;
use robust_identity::IdentityError;
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_host_client::NodeHostClient;
use robust_proto::v1::node_message::Body as Up;
use robust_proto::v1::{self, LeaderMessage, NodeMessage};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// A leader of several that said nothing for so long is left for another one. It beats several times in this.
const SILENCE: Duration = Duration::from_millis(1500);
/// First and longest pause between two attempts.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

const NO_TOKEN: &str = "it does not know the join token of --token-file: that was taken back or has expired, or is another job's; \
     `robustctl token create` where the leader runs makes one";

/// Why a link is no more, or never was.
pub(super) enum Broken {
    /// Tried again.
    Lost(String),
    /// Not by itself.
    Refused(String),
    /// By a leader that does not know this node's certificate: with a token it may get another.
    Unknown(String),
}

impl Broken {
    /// In words.
    pub fn reason(&self) -> &str {
        match self {
            Broken::Lost(reason) | Broken::Refused(reason) | Broken::Unknown(reason) => reason,
        }
    }
}

impl From<Status> for Broken {
    fn from(status: Status) -> Self {
        let text = status.message().to_owned();
        match status.code() {
            Code::Unauthenticated => Broken::Unknown(text),
            Code::FailedPrecondition | Code::InvalidArgument => Broken::Refused(text),
            Code::Unimplemented => Broken::Refused("it is not listening for nodes there".into()),
            code => Broken::Lost(format!("{code:?}: {text}")),
        }
    }
}

impl From<CredentialsError> for Broken {
    fn from(error: CredentialsError) -> Self {
        Broken::Refused(error.to_string())
    }
}

impl From<FilesError> for Broken {
    fn from(error: FilesError) -> Self {
        Broken::Lost(error.to_string())
    }
}

/// Keeps the node joined until nobody listens to the events any more.
pub(super) async fn run(
    (config, state): (Arc<NodeConfig>, StateDir),
    credentials: Arc<Credentials>,
    exchange: Exchange,
    events: UnboundedSender<LinkEvent>,
) {
    let (mut pause, mut known) = (PAUSE.0, true);
    loop {
        let mut link = Link {
            config: &config,
            state: &state,
            credentials: &credentials,
            exchange: &exchange,
            events: &events,
            joined: false,
            beats: false,
        };
        let Err(broken) = link.once(known).await else {
            return;
        };
        if link.joined {
            pause = PAUSE.0;
        }
        // One attempt with the token after one with the certificate: that was of a stranger, maybe, who listened where
        // the leader does, and a token that is used up gives no other.
        let enrolls = known && credentials.token().is_some();
        known = true;
        let event = match broken {
            Broken::Lost(reason) => LinkEvent::Lost { reason },
            Broken::Unknown(reason) if enrolls => {
                known = false;
                LinkEvent::Lost { reason }
            }
            Broken::Unknown(reason) | Broken::Refused(reason) => LinkEvent::Refused { reason },
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
    credentials: &'a Arc<Credentials>,
    exchange: &'a Exchange,
    events: &'a UnboundedSender<LinkEvent>,
    joined: bool,
    /// There are other addresses, and the leader is one of several: it beats.
    beats: bool,
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
    /// One link, from the connection to its break. Ends well only when nobody listens any more. `known`: nothing says
    /// that the leader does not know this node's certificate.
    async fn once(&mut self, known: bool) -> Result<(), Broken> {
        match self.talk(known).await {
            Ok(Unheard) => Ok(()),
            Err(broken) => Err(broken),
        }
    }

    async fn talk(&mut self, known: bool) -> Result<Unheard, Broken> {
        if !known || self.credentials.caller()?.is_none() {
            self.enroll().await?;
        }
        let outside = self.credentials.are_from_outside();
        let way = |leader: &str| {
            let caller = Arc::clone(self.credentials).certified_caller();
            Way::new(leader, caller).showing(outside)
        };
        let (way, channel) = Way::first(&self.config.leaders, way).await?;
        let here = way.here();
        let bulk = way.connect_lazy()?;
        let (up, outgoing) = unbounded_channel();
        let advertise = self.config.advertise.unwrap_or(here);
        let begun = self.begin(&channel, &up, outgoing, advertise).await?;
        let Some(mut down) = begun else {
            return Ok(Unheard);
        };
        let Down::Welcome(welcome) = next(&mut down).await? else {
            return Err(Broken::Refused("its second message is no welcome".into()));
        };
        self.joined = true;
        self.credentials.look();
        let session = welcome.session.parse();
        let upstream = Upstream {
            at: way.leader().to_owned(),
            channel,
            bulk,
            gives: self.identify(&welcome.identity),
            session: session.map_err(|_| Broken::Refused("its session has no key".into()))?,
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
        let token = JobToken::of(&welcome.roles_token);
        if self.events.send(LinkEvent::Ready { job, token }).is_err() {
            return Ok(Unheard);
        }
        loop {
            let order = match self.next(&mut down).await? {
                Down::Beat(_) => continue,
                Down::Renew(renew) => {
                    self.credentials.renew_by(renew.authority);
                    continue;
                }
                order => order,
            };
            if self.events.send(LinkEvent::Order(order)).is_err() {
                return Ok(Unheard);
            }
        }
    }

    /// Whether nodes give shards to each other under this leader.
    fn identify(&self, pem: &str) -> bool {
        if pem.is_empty() {
            return false;
        }
        let identified = self.exchange.identify(pem);
        identified
            .inspect_err(|error| {
                tracing::error!("this node's certificate for other nodes cannot be used: {error}");
            })
            .is_ok()
    }

    /// What the leader says next. Of several, one that is silent is not waited for.
    async fn next(&self, down: &mut DownStream) -> Result<Down, Broken> {
        if !self.beats {
            return next(down).await;
        }
        let said = timeout(SILENCE, next(down)).await;
        said.unwrap_or_else(|_| {
            let silence = SILENCE.as_millis();
            Err(Broken::Lost(format!(
                "the leader said nothing for {silence} ms"
            )))
        })
    }

    /// Has a key of this node certified.
    async fn enroll(&self) -> Result<(), Broken> {
        let token = self.credentials.token().ok_or(CredentialsError::NoToken)?;
        let refused = |error: IdentityError| Broken::Refused(error.to_string());
        let holder = token.holders().and_then(|holders| holders.caller());
        let holder = holder.map_err(refused)?;
        let way = |leader: &str| {
            let holder = holder.clone();
            Way::new(leader, move || Ok(holder.clone()))
        };
        let connected = Way::first(&self.config.leaders, way).await;
        let (way, channel) = connected.map_err(|broken| match broken {
            Broken::Unknown(_) => Broken::Refused(NO_TOKEN.to_owned()),
            broken => broken,
        })?;
        let key = self.credentials.uncertified()?;
        let request = v1::EnrollRequest {
            name: self.config.name.clone(),
            public_key: key.public().to_vec(),
        };
        let mut client = NodeHostClient::new(channel);
        let enrolling = timeout(HANDSHAKE, client.enroll(request));
        let slow = |_| Broken::Lost("the leader does not answer".into());
        let enrolled = enrolling.await.map_err(slow)?;
        let enrolled = enrolled.map_err(|status| match Broken::from(status) {
            Broken::Unknown(reason) => Broken::Refused(reason),
            broken => broken,
        })?;
        self.credentials.certified(&key, &enrolled.into_inner())?;
        tracing::info!("enrolled as {} at {}", self.config.name, way.leader());
        Ok(())
    }

    /// Until the leader has heard what this node has; none when nobody listens any more.
    async fn begin(
        &mut self,
        channel: &Channel,
        up: &UnboundedSender<NodeMessage>,
        outgoing: UnboundedReceiver<NodeMessage>,
        advertise: IpAddr,
    ) -> Result<Option<DownStream>, Broken> {
        let mut client = NodeHostClient::new(channel.clone());
        let joining = client.join(UnboundedReceiverStream::new(outgoing));
        let slow = |_| Broken::Lost("the leader does not answer".into());
        let mut down = timeout(HANDSHAKE, joining)
            .await
            .map_err(slow)??
            .into_inner();
        let first = timeout(HANDSHAKE, next(&mut down)).await.map_err(slow)??;
        let Down::Greeting(v1::LeaderGreeting { run, epoch }) = first else {
            return Err(Broken::Refused("its first message is no greeting".into()));
        };
        self.beats = epoch > 0 && self.config.leaders.len() > 1;
        let (answer, standing) = oneshot::channel();
        let asked = self.events.send(LinkEvent::Greeted { run, epoch, answer });
        let (Ok(()), Ok(standing)) = (asked, standing.await) else {
            return Ok(None);
        };
        let standing = standing.map_err(|earlier| Broken::Lost(earlier.to_string()))?;
        let _ = up.send(message(Up::Standing(self.standing(standing, advertise))));
        Ok(Some(down))
    }

    fn standing(&self, standing: Standing, at: IpAddr) -> v1::NodeStanding {
        let config = self.config;
        v1::NodeStanding {
            identity: standing.identity,
            advertise: at.to_string(),
            dc: config.dc.clone(),
            rack: config.rack.clone(),
            accel: config.accel.clone(),
            pools: config.pools.clone().into_iter().collect(),
            running: standing.running,
            ended: standing.ended,
            held: standing.held,
            renews: true,
            hears_beats: true,
            puts_shards: true,
            inspects: true,
            keeps_spares: true,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            shards: self
                .exchange
                .listen(at)
                .map_or_else(String::new, |at| at.to_string()),
        }
    }
}
