//! A real node, and leaders that do not keep to the protocol.
use robust_identity::NodeKey;
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_host_server::{NodeHost, NodeHostServer};
use robust_proto::v1::node_message::Body as Up;
use robust_proto::v1::{self, LeaderMessage, NodeMessage, Part};
use robustd::logging::LogFormat;
use robustd::node::{NodeConfig, NodeEnd, NodeError, NodeParts, run};
use robustd::nodes::{Authorities, JobSecret, JoinToken, Members, TokenId, sealed, unix_ms};
use robustd::state::StateDir;
use robustd::worker::WorkerProgram;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream, UnboundedReceiverStream};
use tonic::{Request, Response, Status, Streaming};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const ANOTHER: &str = "another token, as long as it is";

/// How far a leader keeps to the protocol.
#[derive(Clone, Copy, PartialEq)]
enum Leads {
    Well,
    ByAnotherToken,
    BySpeakingInClear,
    /// Its certificate is no use.
    ByACertificateForAnotherKey,
    ByWelcomingFirst,
    ByRefusing,
    ByNonsense,
    /// Ends the first streams at once.
    ByLeavingTwice,
}

#[derive(Clone)]
struct Leader {
    leads: Leads,
    streams: Arc<Mutex<u32>>,
    members: Members,
    said: UnboundedSender<Up>,
}

type Sender = UnboundedSender<Result<LeaderMessage, Status>>;

fn tell(down: &Sender, body: Down) {
    let _ = down.send(Ok(LeaderMessage { body: Some(body) }));
}

impl Leader {
    async fn lead(self, mut up: Streaming<NodeMessage>, down: Sender) -> Option<()> {
        let stream = {
            let mut streams = self.streams.lock().unwrap();
            *streams += 1;
            *streams
        };
        if self.leads == Leads::ByLeavingTwice && stream <= 2 {
            return None;
        }
        if self.leads == Leads::ByWelcomingFirst {
            tell(&down, Down::Welcome(v1::NodeWelcome::default()));
        }
        let run = "run".to_owned();
        tell(&down, Down::Greeting(v1::LeaderGreeting { run, epoch: 0 }));
        let Some(Up::Standing(standing)) = up.message().await.ok()??.body else {
            panic!("it does not say what it has");
        };
        assert!(!standing.identity.is_empty());
        if self.leads == Leads::ByRefusing {
            let _ = down.send(Err(Status::failed_precondition("not you")));
            return None;
        }
        let data = robust_shared::job::Job::parse(
            "[data]\nprompts = \"p\"\ntokenizer = \"t\"\n",
            std::path::Path::new("job.toml"),
        );
        let job = serde_json::to_string(&data.unwrap()).unwrap();
        let welcome = v1::NodeWelcome {
            identity: String::new(),
            job,
            files: Vec::new(),
            session: "session".to_owned(),
            roles_token: "token".to_owned(),
        };
        tell(&down, Down::Welcome(welcome));
        if self.leads == Leads::ByNonsense {
            nonsense(&down);
        }
        let mut answered = 0;
        while let Ok(Some(message)) = up.message().await {
            let body = message.body.unwrap();
            let last = match (&body, self.leads) {
                // A start is answered when it has failed, whatever was asked since.
                (Up::Exited(_) | Up::NotSpawned(_), Leads::ByNonsense) => {
                    answered += 1;
                    answered == NONSENSE
                }
                (_, Leads::ByNonsense) => false,
                (body, _) => matches!(body, Up::Exited(_) | Up::Beat(_)),
            };
            let _ = self.said.send(body);
            if last {
                tell(&down, Down::Ended(v1::JobEnded { over: true }));
            }
        }
        None
    }
}

/// So many of those orders are answered: three starts, and the end of what never ran.
const NONSENSE: u32 = 4;

/// Orders that no leader gives.
fn nonsense(down: &Sender) {
    tell(down, Down::Greeting(v1::LeaderGreeting::default()));
    tell(down, Down::Welcome(v1::NodeWelcome::default()));
    for (role, revision, job) in [("king", 0, ""), ("rollout", 2, "{"), ("rollout", 0, "")] {
        let (role, job) = (role.to_owned(), job.to_owned());
        tell(
            down,
            Down::Spawn(v1::SpawnRole {
                role,
                index: 0,
                incarnation: 5,
                generation: 0,
                revision,
                job,
                pool: "nowhere".to_owned(),
                place: u32::MAX,
                identity: "no certificate".to_owned(),
            }),
        );
    }
    for fault in ["", "dance", "exit 3", "slow 0% 9999999s", "kill"] {
        let (incarnation, fault) = (5, fault.to_owned());
        tell(down, Down::Strike(v1::StrikeRole { incarnation, fault }));
    }
    let (incarnation, limit_ms) = (77, 1);
    tell(
        down,
        Down::Collect(v1::CollectEvidence {
            incarnation,
            limit_ms,
            gently: false,
        }),
    );
    tell(down, Down::Kill(v1::KillRole { incarnation: 99 }));
}

#[tonic::async_trait]
impl NodeHost for Leader {
    type JoinStream = UnboundedReceiverStream<Result<LeaderMessage, Status>>;
    type ReadFileStream = ReceiverStream<Result<Part, Status>>;
    type ReadShardStream = ReceiverStream<Result<v1::ShardPart, Status>>;

    async fn join(
        &self,
        request: Request<Streaming<NodeMessage>>,
    ) -> Result<Response<Self::JoinStream>, Status> {
        let (down, messages) = unbounded_channel();
        tokio::spawn(self.clone().lead(request.into_inner(), down));
        Ok(Response::new(UnboundedReceiverStream::new(messages)))
    }

    async fn enroll(
        &self,
        request: Request<v1::EnrollRequest>,
    ) -> Result<Response<v1::EnrollReply>, Status> {
        let mut asked = request.into_inner();
        if self.leads == Leads::ByACertificateForAnotherKey {
            asked.public_key = NodeKey::new().unwrap().public().to_vec();
        }
        let key = (asked.name.as_str(), asked.public_key.as_slice());
        let enrolled = self.members.enroll(&TokenId::Shared, key, false, unix_ms());
        let enrolled = enrolled.unwrap();
        Ok(Response::new(v1::EnrollReply {
            certificates: enrolled.pem,
            since_ms: enrolled.since_ms,
            until_ms: enrolled.until_ms,
        }))
    }

    async fn read_file(
        &self,
        _: Request<v1::ReadFileRequest>,
    ) -> Result<Response<Self::ReadFileStream>, Status> {
        Err(Status::not_found("no files"))
    }

    async fn read_shard(
        &self,
        _: Request<v1::ReadShardRequest>,
    ) -> Result<Response<Self::ReadShardStream>, Status> {
        Err(Status::not_found("no shards"))
    }

    async fn keep_shard(
        &self,
        _: Request<Streaming<v1::ShardPart>>,
    ) -> Result<Response<v1::KeptShard>, Status> {
        Err(Status::invalid_argument("not kept"))
    }

    async fn find_shard(
        &self,
        _: Request<v1::HeldShard>,
    ) -> Result<Response<v1::ShardPlaces>, Status> {
        Ok(Response::new(v1::ShardPlaces::default()))
    }

    async fn clock(
        &self,
        _: Request<v1::ClockRequest>,
    ) -> Result<Response<v1::ClockReply>, Status> {
        Ok(Response::new(v1::ClockReply::default()))
    }
}

/// A node's whole life under such a leader, and what it said.
async fn live_under(leads: Leads) -> (Result<NodeEnd, NodeError>, Vec<Up>) {
    let temp = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let (said, mut heard) = unbounded_channel();
    let token = match leads {
        Leads::ByAnotherToken => ANOTHER,
        _ => TOKEN,
    };
    let joins = temp.path().join("joins.json");
    let shared = JoinToken::of(token);
    let authority = StateDir::make(&temp.path().join("authority")).unwrap();
    let authority = Authorities::open(&authority, JobSecret::of("secret"), "job", true).unwrap();
    let members = Members::open(&joins, &authority, Some(&shared), None).unwrap();
    let leader = Leader {
        leads,
        streams: Arc::default(),
        members: members.clone(),
        said,
    };
    let server = tonic::transport::Server::builder().add_service(NodeHostServer::new(leader));
    if leads == Leads::BySpeakingInClear {
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    } else {
        tokio::spawn(server.serve_with_incoming(sealed(listener, members)));
    }
    let config = NodeConfig {
        leaders: vec![addr.to_string()],
        name: "b".to_owned(),
        dc: String::new(),
        rack: String::new(),
        accel: String::new(),
        pools: [("rollout".to_owned(), 1)].into(),
        advertise: None,
        drain: std::time::Duration::ZERO,
    };
    let parts = NodeParts {
        config,
        token: Some(JoinToken::of(TOKEN)),
        outside: None,
        state: StateDir::make(&temp.path().join("state")).unwrap(),
        worker: WorkerProgram {
            path: "/nonexistent".into(),
            logs: LogFormat::Human,
        },
        sources: Default::default(),
        seen_devices: Default::default(),
    };
    let end = timeout(Duration::from_secs(30), run(parts));
    let end = end.await.expect("the node ends");
    let mut all = Vec::new();
    while let Ok(body) = heard.try_recv() {
        all.push(body);
    }
    (end, all)
}

#[tokio::test]
async fn a_leader_that_cannot_prove_itself_or_talks_out_of_turn_is_left_with_its_reason() {
    for (leads, what) in [
        (Leads::ByAnotherToken, "does not know the join token"),
        (Leads::BySpeakingInClear, "speaks no TLS"),
        (Leads::ByACertificateForAnotherKey, "setting up TLS"),
        (Leads::ByWelcomingFirst, "first message is no greeting"),
        (Leads::ByRefusing, "not you"),
    ] {
        let (end, said) = live_under(leads).await;
        let error = end.unwrap_err();
        assert!(matches!(error, NodeError::Refused { .. }), "{error}");
        assert!(error.to_string().contains(what), "{what}: {error}");
        assert!(said.is_empty(), "nothing is said to a stranger: {said:?}");
    }
}

#[tokio::test]
async fn a_node_joins_again_until_it_is_let_in_and_ends_with_its_job() {
    for leads in [Leads::Well, Leads::ByLeavingTwice] {
        let (end, said) = live_under(leads).await;
        assert_eq!(end.unwrap(), NodeEnd::JobOver);
        assert!(
            said.iter().any(|body| matches!(body, Up::Beat(_))),
            "{said:?}"
        );
    }
}

#[tokio::test]
async fn orders_that_make_no_sense_are_answered_or_dropped() {
    let (end, said) = live_under(Leads::ByNonsense).await;
    assert_eq!(end.unwrap(), NodeEnd::JobOver);
    let refused = |body: &Up| match body {
        Up::NotSpawned(refused) => Some(refused.reason.clone()),
        _ => None,
    };
    let refused: Vec<_> = said.iter().filter_map(refused).collect();
    assert_eq!(refused.len(), 3, "{said:?}");
    assert!(refused[0].contains("king"), "{refused:?}");
    assert!(refused[1].contains("EOF"), "{refused:?}");
    assert!(refused[2].contains("/nonexistent"), "{refused:?}");
}
