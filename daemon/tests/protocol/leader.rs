//! A real leader's service, and nodes that do not keep to the protocol.
use hyper_util::rt::TokioIo;
use robust_ckpt::slot::{Slot, SnapshotMemory};
use robust_identity::{Caller, NodeKey};
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_host_client::NodeHostClient;
use robust_proto::v1::node_message::Body as Up;
use robust_proto::v1::role_host_client::RoleHostClient;
use robust_proto::v1::{self, LeaderMessage, NodeMessage};
use robust_shared::ids::{Generation, Step};
use robust_shared::job::Job;
use robustd::digests::Digests;
use robustd::driver::Event;
use robustd::files::JobFiles;
use robustd::grpc::{RoleHostService, bind_tcp, serve_nodes};
use robustd::leases::Leases;
use robustd::nodes::{
    Authorities, IN_ALL, JobSecret, JoinToken, Members, NodeHostService, NodeLinkEvent,
    NodeRefused, OF_ONE_ADDRESS, RankThere, SESSION_HEADER, Sessions, ShardDigests, Shards,
    unix_ms,
};
use robustd::state::StateDir;
use robustd::store::Store;
use robustd::tell::Tell;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Status, Streaming};

pub const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// A leader whose driver admits everybody but `unwanted`, and hands on what it hears.
pub struct Leader {
    temp: tempfile::TempDir,
    pub addr: SocketAddr,
    pub members: Members,
    sessions: Sessions,
    shards: Shards,
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
async fn call(addr: SocketAddr, token: &str) -> Result<Channel, tonic::transport::Error> {
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

    async fn next(&mut self) -> Event {
        let next = timeout(Duration::from_secs(10), self.heard.recv());
        next.await.expect("something is heard").unwrap()
    }

    /// What a stream is refused with whose messages are these.
    async fn refusal(&self, messages: Vec<Up>) -> Status {
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
    channel: Channel,
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

    fn say(&self, body: Up) {
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

fn standing(identity: &str) -> Up {
    Up::Standing(v1::NodeStanding {
        identity: identity.to_owned(),
        ..Default::default()
    })
}

fn beat() -> Up {
    Up::Beat(v1::NodeBeat {})
}

#[tokio::test]
async fn a_stream_that_does_not_begin_as_agreed_is_refused_with_its_reason() {
    let leader = Leader::start().await;
    for (messages, what) in [
        (vec![beat()], "begins with what it has"),
        (vec![standing("")], "identity"),
        (vec![standing(&"x".repeat(99))], "identity"),
        (vec![standing("id"), standing("id")], "has said what it has"),
    ] {
        let status = leader.refusal(messages).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().contains(what), "{what}: {status}");
    }
}

#[tokio::test]
async fn who_has_a_join_token_alone_joins_no_job_and_reads_nothing_of_it() {
    let leader = Leader::start().await;
    let holder = call(leader.addr, TOKEN).await.unwrap();
    let refused = Peer::join(holder.clone()).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unauthenticated);
    assert!(refused.message().contains("enroll first"), "{refused}");
    for key in [None, Some("0".repeat(64))] {
        let refused = read(&holder, key.as_deref()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated);
    }
    let mut roles = RoleHostClient::new(holder);
    let refusal = roles.route(v1::RouteRequest::default()).await.unwrap_err();
    assert_eq!(refusal.code(), Code::Unauthenticated);
}

/// A node that was broken into knows its own key and its own session's.
#[tokio::test]
async fn a_node_makes_no_node_and_speaks_for_no_other() {
    let mut leader = Leader::start().await;
    let (mut b, mut c) = (leader.join("b").await, leader.join("c").await);
    let (of_b, of_c) = (b.welcomed().await, c.welcomed().await);
    assert_ne!(of_b, of_c);
    let mut client = NodeHostClient::new(b.channel.clone());
    let request = v1::EnrollRequest {
        name: "d".to_owned(),
        public_key: NodeKey::new().unwrap().public().to_vec(),
    };
    let refused = client.enroll(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    // It kept the token for all, and would be the other one, which is joined.
    let refused = enroll(leader.addr, TOKEN, "c", &NodeKey::new().unwrap()).await;
    let refused = refused.err().unwrap();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    c.say(beat());
    let said = leader.next().await;
    assert!(matches!(said, Event::Node(NodeLinkEvent::Said { .. })));
}

#[tokio::test]
async fn a_token_of_one_machine_makes_one_node_and_a_name_that_makes_no_sense_none() {
    let leader = Leader::start().await;
    let created = leader.members.create(None, 60, unix_ms()).unwrap();
    let (key, other) = (NodeKey::new().unwrap(), NodeKey::new().unwrap());
    let token = created.token.reveal();
    for name in ["", &"x".repeat(65)] {
        let refused = enroll(leader.addr, token, name, &key).await.err().unwrap();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
    }
    let caller = enroll(leader.addr, token, "b", &key).await.unwrap();
    let refused = enroll(leader.addr, token, "c", &other).await.err().unwrap();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    let channel = connect(leader.addr, caller).await.unwrap();
    let mut peer = Peer::join(channel).await.unwrap();
    assert!(matches!(peer.hear().await, Ok(Some(Down::Greeting(_)))));
    peer.welcomed().await;
}

#[tokio::test]
async fn a_certificate_that_is_taken_back_ends_the_stream_and_opens_none() {
    let mut leader = Leader::start().await;
    let mut peer = leader.join("b").await;
    let key = peer.welcomed().await;
    read(&peer.channel, Some(&key)).await.unwrap();
    leader.members.revoke_node("b", unix_ms()).unwrap();
    leader.sessions.close("b");
    let status = peer.hear().await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    let refused = read(&peer.channel, Some(&key)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let gone = leader.next().await;
    assert!(matches!(gone, Event::Node(NodeLinkEvent::Gone { .. })));
}

#[tokio::test]
async fn who_is_enrolled_under_a_name_takes_the_place_of_whoever_had_it() {
    let leader = Leader::start().await;
    let key = NodeKey::new().unwrap();
    let before = enroll(leader.addr, TOKEN, "b", &key).await.unwrap();
    let mut peer = Peer::join(connect(leader.addr, before.clone()).await.unwrap())
        .await
        .unwrap();
    assert!(matches!(peer.hear().await, Ok(Some(Down::Greeting(_)))));
    peer.welcomed().await;
    let wanted = Some("b".to_owned());
    let created = leader.members.create(wanted, 60, unix_ms()).unwrap();
    let token = created.token.reveal();
    enroll(leader.addr, token, "b", &NodeKey::new().unwrap())
        .await
        .unwrap();
    let status = peer.hear().await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    let refused = Peer::join(connect(leader.addr, before).await.unwrap()).await;
    let refused = refused.err().unwrap();
    assert_eq!(refused.code(), Code::Unauthenticated, "{refused}");
    assert!(refused.message().contains("another machine"), "{refused}");
}

fn shown<T>(message: T, key: Option<&str>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(key) = key {
        request
            .metadata_mut()
            .insert(SESSION_HEADER, key.parse().unwrap());
    }
    request
}

async fn read(channel: &Channel, key: Option<&str>) -> Result<Vec<u8>, Status> {
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

#[tokio::test]
async fn a_node_that_proves_itself_is_welcome_for_as_long_as_its_stream_lives() {
    let mut leader = Leader::start().await;
    let mut peer = leader.join("b").await;
    peer.say(standing("id"));
    let Some(Down::Welcome(welcome)) = peer.hear().await.unwrap() else {
        panic!("no welcome");
    };
    let key = welcome.session;
    let channel = peer.channel.clone();
    let names: Vec<_> = welcome.files.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(
        names,
        ["config.json", "model.safetensors", "tokenizer.json"]
    );
    let bytes = read(&channel, Some(&key)).await.unwrap();
    assert_eq!(bytes, b"content of tokenizer.json");
    peer.say(beat());
    let said = leader.next().await;
    assert!(matches!(said, Event::Node(NodeLinkEvent::Said { .. })));
    let mut client = NodeHostClient::new(channel.clone());
    let outside = v1::ReadShardRequest {
        path: "/etc/passwd".to_owned(),
        ..Default::default()
    };
    let outside = client.read_shard(shown(outside, Some(&key))).await;
    assert_eq!(outside.unwrap_err().code(), Code::InvalidArgument);
    let nothing = tokio_stream::iter(Vec::<v1::ShardPart>::new());
    let refusal = client
        .keep_shard(shown(nothing, Some(&key)))
        .await
        .unwrap_err();
    assert!(
        refusal.message().contains("begins with its header"),
        "{refusal}"
    );
    drop(peer);
    let gone = leader.next().await;
    assert!(matches!(gone, Event::Node(NodeLinkEvent::Gone { .. })));
    let refusal = read(&channel, Some(&key)).await.unwrap_err();
    assert_eq!(
        refusal.code(),
        Code::Unauthenticated,
        "its session is closed"
    );
}

/// A part that is a whole shard of five bytes.
fn shard(incarnation: u64, step: u64, bytes: u64) -> v1::ShardPart {
    let header = v1::ShardHeader {
        incarnation,
        rank: 1,
        step,
        bytes,
    };
    v1::ShardPart {
        header: Some(header),
        data: b"hello".to_vec(),
        xxh3: Some(xxhash_rust::xxh3::xxh3_64(b"hello")),
    }
}

/// A node that would fill the leader's memory, or pass off its own bytes as a rank's that runs elsewhere.
#[tokio::test]
async fn a_node_sends_what_is_waited_for_from_it_and_nothing_else_is_kept() {
    let leader = Leader::start().await;
    let (mut b, mut c) = (leader.join("b").await, leader.join("c").await);
    let (of_b, of_c) = (b.welcomed().await, c.welcomed().await);
    let send = async |part: v1::ShardPart, key: &str| {
        let parts = tokio_stream::iter(vec![part]);
        let mut client = NodeHostClient::new(b.channel.clone());
        let kept = client.keep_shard(shown(parts, Some(key))).await;
        kept.map_or_else(|status| status.code(), |_| Code::Ok)
    };
    let memory = leader.temp.path().join("shm");
    let lies_there = || std::fs::read_dir(&memory).unwrap().count();
    // Nobody trains, and nothing was asked for.
    assert_eq!(send(shard(7, 3, 5), &of_b).await, Code::FailedPrecondition);
    assert_eq!(send(shard(0, 3, 5), &of_b).await, Code::FailedPrecondition);
    let there = RankThere {
        incarnation: 7,
        rank: 1,
        node: "b".to_owned(),
        bytes: None,
    };
    leader.shards.expect_of_gang(3..=3, vec![there]);
    assert_eq!(send(shard(7, 3, 5), &of_c).await, Code::FailedPrecondition);
    assert_eq!(send(shard(7, 9, 5), &of_b).await, Code::FailedPrecondition);
    assert_eq!(send(shard(8, 3, 5), &of_b).await, Code::FailedPrecondition);
    let vast = shard(7, 3, 1 << 50);
    assert_eq!(send(vast, &of_b).await, Code::ResourceExhausted);
    assert_eq!(lies_there(), 0);
    assert_eq!(send(shard(7, 3, 5), &of_b).await, Code::Ok);
    let asked = leader.shards.expect((3, 1), "c", 5);
    assert_eq!(send(shard(0, 3, 5), &of_b).await, Code::FailedPrecondition);
    assert_eq!(send(shard(0, 3, 5), &of_c).await, Code::Ok);
    drop(asked);
    assert_eq!(send(shard(0, 3, 5), &of_c).await, Code::FailedPrecondition);
    assert_eq!(lies_there(), 2);
}

/// What a copy is to be is what was sent to be copied, and not what its holder says of it.
#[tokio::test]
async fn the_digest_of_what_a_node_reads_is_remembered() {
    let leader = Leader::start().await;
    let mut peer = leader.join("b").await;
    let key = peer.welcomed().await;
    let path = leader.temp.path().join("shm/trainer-0.slot0");
    let image = vec![3_u8; 5000];
    let mut slot = Slot::open(&path, image.len() as u64).unwrap();
    let part: &dyn SnapshotMemory = &image.as_slice();
    slot.write((Step(4), Generation(2)), 4, &[part]).unwrap();
    let mut shard = v1::SnapshotReply {
        step: 4,
        generation: 2,
        path: path.display().to_string(),
        bytes: image.len() as u64,
        ..Default::default()
    };
    assert_eq!(leader.shards.digest_read(&shard), None);
    let asked = v1::ReadShardRequest {
        path: shard.path.clone(),
        step: 4,
        generation: 2,
        bytes: shard.bytes,
    };
    let mut client = NodeHostClient::new(peer.channel.clone());
    let parts = client.read_shard(shown(asked, Some(&key))).await.unwrap();
    let mut parts = parts.into_inner();
    while parts.message().await.unwrap().is_some() {}
    let digests = ShardDigests {
        xxh3: xxhash_rust::xxh3::xxh3_64(&image),
        blake3: *blake3::hash(&image).as_bytes(),
    };
    assert_eq!(leader.shards.digest_read(&shard), Some(digests));
    shard.step = 5;
    assert_eq!(leader.shards.digest_read(&shard), None);
}

#[tokio::test]
async fn the_driver_may_refuse_a_node() {
    let leader = Leader::start().await;
    let mut unwanted = leader.join("unwanted").await;
    unwanted.say(standing("id"));
    let status = unwanted.hear().await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("--name"), "{status}");
    assert!(!leader.sessions.has("unwanted"));
}

#[tokio::test]
async fn who_has_the_token_may_ask_for_the_clock_before_it_joins_and_for_nothing_else() {
    let leader = Leader::start().await;
    let mut client = NodeHostClient::new(call(leader.addr, TOKEN).await.unwrap());
    let unix_us = || {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        u64::try_from(now.unwrap().as_micros()).unwrap()
    };
    let before = unix_us();
    let said = client
        .clock(v1::ClockRequest {})
        .await
        .unwrap()
        .into_inner();
    assert!((before..=unix_us()).contains(&said.unix_us), "{said:?}");
    assert_eq!(said.seen_as, "127.0.0.1");
    assert_eq!(said.version, env!("CARGO_PKG_VERSION"));
    let name = "data.prompts".to_owned();
    let refused = client.read_file(v1::ReadFileRequest { name }).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn who_has_another_token_or_none_hears_nothing_of_the_job() {
    let leader = Leader::start().await;
    call(leader.addr, "another token, as long as it is")
        .await
        .unwrap_err();
    // HTTP/2 in clear, and a call for the clock's path in HTTP/1.1.
    for plain in [
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "POST /robust.v1.NodeHost/Clock HTTP/1.1\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(leader.addr).await.unwrap();
        stream.write_all(plain.as_bytes()).await.unwrap();
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard).await;
        // An alert of TLS (type 21): its header, a level and a description.
        assert!(heard.len() <= 7 && heard.first().is_none_or(|kind| *kind == 21));
    }
    let mut client = NodeHostClient::new(call(leader.addr, TOKEN).await.unwrap());
    client.clock(v1::ClockRequest {}).await.unwrap();
}

#[tokio::test]
async fn strangers_who_hold_connections_open_keep_no_node_out() {
    let leader = Leader::start().await;
    let from = |last: u8| async move {
        let socket = TcpSocket::new_v4().unwrap();
        let local = SocketAddr::from(([127, 0, 0, last], 0));
        socket.bind(local).unwrap();
        socket.connect(leader.addr).await.unwrap()
    };
    let mut held = Vec::new();
    for _ in 0..4 * OF_ONE_ADDRESS {
        held.push(from(2).await);
    }
    // Those for whom there was no place are closed, the others are waited for.
    let mut closed = 0;
    for stream in &mut held {
        let mut byte = [0];
        let read = timeout(Duration::from_millis(50), stream.read(&mut byte)).await;
        closed += usize::from(matches!(read, Ok(Ok(0) | Err(_))));
    }
    assert_eq!(closed, 3 * OF_ONE_ADDRESS);
    assert!(held.len() < IN_ALL);
    // From another address at once, though none of theirs has ended yet.
    call(leader.addr, TOKEN).await.unwrap();
}
