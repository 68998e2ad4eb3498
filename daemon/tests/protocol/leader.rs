//! A real leader's service, and peers that say to it what they like.
use hyper_util::rt::TokioIo;
use robust_identity::{Caller, NodeKey};
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_host_client::NodeHostClient;
use robust_proto::v1::node_message::Body as Up;
use robust_proto::v1::{self, LeaderMessage, NodeMessage};
use robust_shared::job::Job;
use robustd::digests::Digests;
use robustd::driver::Event;
use robustd::files::JobFiles;
use robustd::grpc::{RoleHostService, bind_tcp, serve_nodes};
use robustd::leases::Leases;
use robustd::nodes::{
    Authorities, JobSecret, JoinToken, Members, NodeHostService, NodeLinkEvent, NodeRefused,
    SESSION_HEADER, Sessions, Shards,
};
use robustd::state::StateDir;
use robustd::store::Store;
use robustd::tell::Tell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status, Streaming};

pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A leader whose driver admits everybody but `unwanted`, and hands on what it hears.
pub struct Leader {
    pub temp: tempfile::TempDir,
    pub addr: SocketAddr,
    pub members: Members,
    pub sessions: Sessions,
    pub shards: Shards,
    pub heard: UnboundedReceiver<Event>,
}

fn job(root: &Path) -> Job {
    for name in [
        "data.jsonl",
        "tokenizer.json",
        "config.json",
        "model.safetensors",
    ] {
        std::fs::write(root.join(name), format!("content of {name}")).unwrap();
    }
    let text = "[model]\npath = \".\"\n[data]\nprompts = \"data.jsonl\"\n\
                tokenizer = \"tokenizer.json\"\n";
    let mut job = Job::parse(text, Path::new("job.toml")).unwrap();
    job.resolve(root);
    job
}

/// A connection of somebody with this token.
pub async fn call(addr: SocketAddr, token: &str) -> Result<Channel, tonic::transport::Error> {
    let holders = JoinToken::of(token).holders().unwrap();
    connect(addr, holders.caller().unwrap()).await
}

pub async fn connect(addr: SocketAddr, caller: Caller) -> Result<Channel, tonic::transport::Error> {
    let connector = tower::service_fn(move |_: Uri| {
        let caller = caller.clone();
        async move {
            let stream = TcpStream::connect(addr).await?;
            Ok::<_, std::io::Error>(TokioIo::new(caller.call(stream).await?))
        }
    });
    let endpoint = Endpoint::from_static("http://leader");
    endpoint.connect_with_connector(connector).await
}

/// Has a key certified by somebody with this token.
pub async fn enroll(
    addr: SocketAddr,
    token: &str,
    name: &str,
    key: &NodeKey,
) -> Result<Caller, Status> {
    let mut client = NodeHostClient::new(call(addr, token).await.unwrap());
    let request = v1::EnrollRequest {
        name: name.to_owned(),
        public_key: key.public().to_vec(),
    };
    let certificates = client.enroll(request).await?.into_inner().certificates;
    Ok(key.caller(&certificates).unwrap())
}

impl Leader {
    pub async fn start() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (events, mut arriving) = unbounded_channel();
        let (hand_on, heard) = unbounded_channel();
        tokio::spawn(async move {
            while let Some(event) = arriving.recv().await {
                if let Event::Node(NodeLinkEvent::Joined { joined, admitted }) = event {
                    let name = joined.name.clone();
                    let _ = match name.as_str() {
                        "unwanted" => admitted.send(Err(NodeRefused::Taken { name })),
                        _ => admitted.send(Ok(())),
                    };
                    // Its way down stays open for as long as it is held here.
                    std::mem::forget(joined);
                } else if hand_on.send(event).is_err() {
                    return;
                }
            }
        });
        let job = job(temp.path());
        let dir = |name: &str| {
            let path = temp.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        };
        let shards = Shards::new(dir("shm"), dir("ckpt"));
        let shared = JoinToken::of(TOKEN);
        let secret = JobSecret::of("the leader's alone");
        let state = StateDir::make(&temp.path().join("authority")).unwrap();
        let secret = Authorities::open(&state, secret, "job", true).unwrap();
        let members = Members::open(
            &temp.path().join("joins.json"),
            &secret,
            Some(&shared),
            None,
        );
        let (members, sessions) = (members.unwrap(), Sessions::default());
        let (store, _) = Store::open(&dir("state")).unwrap();
        let service = NodeHostService {
            events: Tell::into_channel(&events),
            members: members.clone(),
            roles_token: secret.job_token(),
            run: "run".to_owned(),
            epoch: 0,
            job: serde_json::to_string(&job).unwrap().into(),
            files: JobFiles::new(&job, Digests::new(temp.path().join("digests.json"))),
            store: store.clone(),
            shards: shards.clone(),
            sessions: sessions.clone(),
            numbers: Arc::new(AtomicU64::new(1)),
        };
        let ways = (Tell::into_channel(&events), Tell::into_channel(&events));
        let roles = RoleHostService::new(ways, Leases::default(), store, 1);
        let any = "127.0.0.1:0".parse().unwrap();
        let listener = bind_tcp("--listen-nodes", any).await.unwrap();
        let addr = listener.local_addr().unwrap();
        tokio::spawn(serve_nodes(listener, service, roles));
        Self {
            temp,
            addr,
            members,
            sessions,
            shards,
            heard,
        }
    }

    /// A connection of a node of this name, which was enrolled with the token for all.
    pub async fn node(&self, name: &str) -> Channel {
        let key = NodeKey::new().unwrap();
        let caller = enroll(self.addr, TOKEN, name, &key).await.unwrap();
        connect(self.addr, caller).await.unwrap()
    }

    /// A stream of such a node, of which the leader has greeted it.
    pub async fn join(&self, name: &str) -> Peer {
        let mut peer = Peer::join(self.node(name).await).await.unwrap();
        let greeting = peer.hear().await.unwrap();
        assert!(matches!(greeting, Some(Down::Greeting(_))), "{greeting:?}");
        peer
    }

    /// What the leader hears next.
    pub async fn next(&mut self) -> Event {
        let next = timeout(Duration::from_secs(10), self.heard.recv());
        next.await.expect("something is heard").unwrap()
    }

    /// What a stream is refused with whose messages are these.
    pub async fn refusal(&self, messages: Vec<Up>) -> Status {
        let mut peer = self.join("b").await;
        for body in messages {
            peer.say(body);
        }
        loop {
            match peer.hear().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ended without a reason"),
                Err(status) => return status,
            }
        }
    }
}

pub struct Peer {
    pub channel: Channel,
    up: UnboundedSender<NodeMessage>,
    pub down: Streaming<LeaderMessage>,
}

impl Peer {
    pub async fn join(channel: Channel) -> Result<Self, Status> {
        let (up, messages) = unbounded_channel();
        let mut client = NodeHostClient::new(channel.clone());
        let stream = UnboundedReceiverStream::new(messages);
        let down = client.join(stream).await?.into_inner();
        Ok(Self { channel, up, down })
    }

    /// Says this to the leader.
    pub fn say(&self, body: Up) {
        let _ = self.up.send(NodeMessage { body: Some(body) });
    }

    pub async fn hear(&mut self) -> Result<Option<Down>, Status> {
        let heard = timeout(Duration::from_secs(15), self.down.message());
        let message = heard.await.expect("the leader answers")?;
        Ok(message.and_then(|m| m.body))
    }

    /// Says what it has; the session's key.
    pub async fn welcomed(&mut self) -> String {
        self.say(standing("id"));
        match self.hear().await.unwrap() {
            Some(Down::Welcome(welcome)) => welcome.session,
            other => panic!("no welcome: {other:?}"),
        }
    }
}

/// The first word of a stream, of a node with this identity.
pub fn standing(identity: &str) -> Up {
    Up::Standing(v1::NodeStanding {
        identity: identity.to_owned(),
        ..Default::default()
    })
}

/// A node lives.
pub fn beat() -> Up {
    Up::Beat(v1::NodeBeat {})
}

/// A request with the key of a session.
pub fn shown<T>(message: T, key: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(key) = key {
        request
            .metadata_mut()
            .insert(SESSION_HEADER, key.parse().unwrap());
    }
    request
}

/// Reads a file of the job.
pub async fn read(channel: &Channel, key: Option<&str>) -> Result<Vec<u8>, Status> {
    let name = "tokenizer.json".to_owned();
    let request = shown(v1::ReadFileRequest { name }, key);
    let mut client = NodeHostClient::new(channel.clone());
    let mut parts = client.read_file(request).await?.into_inner();
    let mut bytes = Vec::new();
    while let Some(part) = parts.message().await? {
        bytes.extend(part.data);
    }
    Ok(bytes)
}
