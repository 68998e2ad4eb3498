//! A real node, and leaders that do not keep to the protocol.
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_host_server::{NodeHost, NodeHostServer};
use robust_proto::v1::node_message::Body as Up;
use robust_proto::v1::{self, LeaderMessage, NodeMessage, Part};
use robustd::logging::LogFormat;
use robustd::node::{NodeConfig, NodeEnd, NodeError, NodeParts, run};
use robustd::nodes::{Handshake, Secret, Side, sealed};
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
    /// Within TLS of the right one.
    ByAnotherTokenThanItsTls,
    BySpeakingInClear,
    ByWelcomingFirst,
    ByAShortNonce,
    ByRefusing,
    ByNonsense,
    /// Ends the first streams at once.
    ByLeavingTwice,
}

#[derive(Clone)]
struct Leader {
    leads: Leads,
    streams: Arc<Mutex<u32>>,
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
        let Some(Up::Hello(hello)) = up.message().await.ok()??.body else {
            panic!("no hello");
        };
        let token = match self.leads {
            Leads::ByAnotherTokenThanItsTls => ANOTHER,
            _ => TOKEN,
        };
        let handshake = Handshake {
            secret: Secret::of(token),
            name: hello.name,
            node: hello.nonce.try_into().unwrap(),
            leader: [3; 32],
            run: "run".to_owned(),
        };
        if self.leads == Leads::ByWelcomingFirst {
            tell(&down, Down::Welcome(v1::NodeWelcome::default()));
        }
        let nonce = match self.leads {
            Leads::ByAShortNonce => vec![3; 5],
            _ => vec![3; 32],
        };
        tell(
            &down,
            Down::Challenge(v1::LeaderChallenge {
                nonce,
                proof: handshake.proof(Side::Leader).to_vec(),
                run: handshake.run.clone(),
            }),
        );
        let Some(Up::Proof(proof)) = up.message().await.ok()??.body else {
            panic!("no proof");
        };
        assert!(handshake.proves(Side::Node, &proof.proof));
        if self.leads == Leads::ByRefusing {
            let _ = down.send(Err(Status::failed_precondition("not you")));
            return None;
        }
        let data = robust_shared::job::Job::parse(
            "[data]\nprompts = \"p\"\ntokenizer = \"t\"\n",
            std::path::Path::new("job.toml"),
        );
        let job = serde_json::to_string(&data.unwrap()).unwrap();
        let files = Vec::new();
        tell(&down, Down::Welcome(v1::NodeWelcome { job, files }));
        if self.leads == Leads::ByNonsense {
            nonsense(&down);
        }
        while let Ok(Some(message)) = up.message().await {
            let body = message.body.unwrap();
            let last = matches!(body, Up::Exited(_) | Up::Beat(_))
                && self.leads != Leads::ByNonsense
                || matches!(&body, Up::Exited(e) if e.incarnation == 99);
            let _ = self.said.send(body);
            if last {
                tell(&down, Down::Ended(v1::JobEnded { over: true }));
            }
        }
        None
    }
}

/// Orders that no leader gives; the last one is answered.
fn nonsense(down: &Sender) {
    tell(down, Down::Challenge(v1::LeaderChallenge::default()));
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
    let leader = Leader {
        leads,
        streams: Arc::default(),
        said,
    };
    let server = tonic::transport::Server::builder().add_service(NodeHostServer::new(leader));
    let token = if leads == Leads::ByAnotherToken {
        ANOTHER
    } else {
        TOKEN
    };
    let callee = Secret::of(token).daemons().unwrap().callee("control");
    if leads == Leads::BySpeakingInClear {
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    } else {
        tokio::spawn(server.serve_with_incoming(sealed(listener, callee.unwrap())));
    }
    let config = NodeConfig {
        leader: addr.to_string(),
        name: "b".to_owned(),
        dc: String::new(),
        rack: String::new(),
        accel: String::new(),
        pools: [("rollout".to_owned(), 1)].into(),
        advertise: None,
    };
    let parts = NodeParts {
        config,
        secret: Secret::of(TOKEN),
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
        (Leads::ByAnotherToken, "does not know this node's token"),
        (
            Leads::ByAnotherTokenThanItsTls,
            "does not know this node's token",
        ),
        (Leads::BySpeakingInClear, "speaks no TLS"),
        (Leads::ByWelcomingFirst, "first message is no challenge"),
        (Leads::ByAShortNonce, "32 bytes"),
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
