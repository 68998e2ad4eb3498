//! What somebody can do to a running job who broke into one of its nodes: he has that node's key and connection, and says
//! whatever he likes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_proto::v1::control_client::ControlClient;
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_host_client::NodeHostClient;
use robust_proto::v1::node_message::Body as Up;
use robust_proto::v1::role_exited::Exit;
use robust_proto::v1::role_host_client::RoleHostClient;
use robust_proto::v1::{self, RoleMessage, role_message};
use robust_shared::hardware::Finding;
use robust_shared::ids::TrajectoryId;
use robust_tests::load::{Door, Session, Stream, next, say};
use robust_tests::{Cluster, JobFile, assert_consumed_once};
use robustd::nodes::JoinToken;
use serde_json::Value;
use std::cell::Cell;
use std::path::Path;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Code, Request, Status};

const FULL: &[(&str, i64)] = &[("train", 1), ("rollout", 1), ("agent", 1)];
const MORE: &[(&str, i64)] = &[("train", 1), ("rollout", 2), ("agent", 1)];
const STEPS: u64 = 8;
const PER_STEP: usize = 16;

/// A role of the job that runs on a node that nobody broke into.
#[derive(Clone, Debug)]
struct Victim {
    role: String,
    index: u32,
    incarnation: u64,
}

fn victims(status: &Value) -> Vec<Victim> {
    let all = status["roles"].as_array().unwrap().iter();
    let victim = |role: &Value| Victim {
        role: role["role"].as_str().unwrap().to_owned(),
        index: role["index"].as_u64().unwrap().try_into().unwrap(),
        incarnation: role["incarnation"].as_u64().unwrap(),
    };
    all.map(victim).collect()
}

/// Incarnation and process of each role.
fn processes(status: &Value) -> Vec<(u64, u64)> {
    let all = status["roles"].as_array().unwrap().iter();
    let life = |r: &Value| {
        (
            r["incarnation"].as_u64().unwrap(),
            r["pid"].as_u64().unwrap(),
        )
    };
    all.map(life).collect()
}

struct Broken {
    session: Session,
    stream: Stream,
}

impl Broken {
    /// Joins as the node that it broke into, and says at once that all of the victims run there and ended there.
    async fn join(addr: &str, token: &JoinToken, victims: &[Victim]) -> Self {
        let door = Door::enroll(addr, token, "broken").await.unwrap();
        let standing = v1::NodeStanding {
            identity: "identity of the broken node".to_owned(),
            advertise: "127.0.0.1".to_owned(),
            running: victims.iter().map(|victim| victim.incarnation).collect(),
            ended: victims.iter().map(ended).collect(),
            hears_beats: true,
            renews: true,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Default::default()
        };
        let (session, stream) = door.join(standing).await.unwrap();
        Self { session, stream }
    }

    fn roles(&self) -> RoleHostClient<tonic::transport::Channel> {
        RoleHostClient::new(self.session.channel.clone())
    }

    fn shown<T>(&self, message: T) -> Request<T> {
        self.session.shown(message)
    }

    /// Says of the victims, over the node's stream, what only their own nodes may.
    fn lies(&self, victims: &[Victim]) {
        for victim in victims {
            let incarnation = victim.incarnation;
            say(&self.stream.up, Up::Beat(v1::NodeBeat {}));
            say(
                &self.stream.up,
                Up::Spawned(v1::RoleSpawned {
                    incarnation,
                    pid: 1,
                }),
            );
            let reason = "no such program".to_owned();
            let not = v1::RoleNotSpawned {
                incarnation,
                reason,
            };
            say(&self.stream.up, Up::NotSpawned(not));
            say(&self.stream.up, Up::Exited(ended(victim)));
            let gone = serde_json::to_string(&Finding::xid(79)).unwrap();
            let samples = v1::NodeSamples {
                roles: vec![v1::RoleUsage {
                    incarnation,
                    rss_bytes: u64::MAX,
                    ..Default::default()
                }],
                devices: vec![v1::DeviceReport {
                    device: 0,
                    finding: gone,
                    users: vec![incarnation],
                }],
            };
            say(&self.stream.up, Up::Samples(samples));
            let evidence = v1::RoleEvidence {
                incarnation,
                text: "invented".to_owned(),
                state: "dead".to_owned(),
                ..Default::default()
            };
            say(&self.stream.up, Up::Evidence(evidence));
            // What its rank took was something else.
            let shard = Some(v1::HeldShard {
                step: 1,
                generation: 1,
                rank: victim.index,
                bytes: 4096,
                xxh3: Some(1),
            });
            let blake3 = vec![1; 32];
            // And it put that where the leader has told it to.
            let put = v1::ShardPut {
                ticket: 1,
                shard,
                blake3: blake3.clone(),
                error: String::new(),
            };
            say(&self.stream.up, Up::Put(put));
            say(&self.stream.up, Up::Sent(v1::ShardSent { shard, blake3 }));
        }
    }

    /// Opens a link in a victim's name.
    async fn attach(&self, victim: &Victim) -> Result<(), Status> {
        let hello = v1::Hello {
            role: victim.role.clone(),
            index: victim.index,
            incarnation: victim.incarnation,
            pid: 1,
            transport_addr: "127.0.0.1:1".to_owned(),
            http_addr: "127.0.0.1:1".to_owned(),
            ..Default::default()
        };
        let (up, said) = tokio::sync::mpsc::unbounded_channel();
        let body = Some(role_message::Body::Hello(hello));
        up.send(RoleMessage { body }).unwrap();
        let said = self.shown(UnboundedReceiverStream::new(said));
        let mut down = self.roles().attach(said).await?.into_inner();
        // One that is fenced may be told so as the first message.
        down.message().await.map(drop)
    }

    /// Stores a turn, tokens and an end of a trajectory in a victim's name, and asks for a rollout for it.
    async fn write(&self, victim: &Victim, trajectory: u64) -> Vec<Result<(), Status>> {
        let incarnation = victim.incarnation;
        let span = v1::Span {
            ids: vec![5; 4],
            logprobs: vec![-0.5; 4],
            version: 0,
        };
        let turn = v1::Turn {
            spans: vec![span.clone()],
            ..Default::default()
        };
        let turn = v1::AppendTurnRequest {
            incarnation,
            trajectory,
            prompt_ids: vec![1],
            turn: Some(turn),
        };
        let spans = v1::AppendSpansRequest {
            incarnation,
            trajectory,
            prompt_ids: vec![1],
            spans: vec![span],
            ..Default::default()
        };
        let finish = v1::FinishTrajectoryRequest {
            incarnation,
            trajectory,
            reward: 1e6,
            ..Default::default()
        };
        let route = v1::RouteRequest {
            incarnation,
            trajectory,
        };
        let mut roles = self.roles();
        vec![
            roles.append_turn(self.shown(turn)).await.map(drop),
            roles.append_spans(self.shown(spans)).await.map(drop),
            roles.finish_trajectory(self.shown(finish)).await.map(drop),
            roles.route(self.shown(route)).await.map(drop),
        ]
    }

    /// Reads a file of the leader's by this name.
    async fn read_file(&self, name: &str) -> Result<(), Status> {
        let mut nodes = NodeHostClient::new(self.session.channel.clone());
        let name = name.to_owned();
        let parts = nodes.read_file(self.shown(v1::ReadFileRequest { name }));
        parts.await?.into_inner().message().await.map(drop)
    }

    async fn read_shard(&self, path: &str) -> Result<(), Status> {
        let mut nodes = NodeHostClient::new(self.session.channel.clone());
        let shard = v1::ReadShardRequest {
            path: path.to_owned(),
            step: 1,
            generation: 1,
            bytes: 4096,
        };
        let parts = nodes.read_shard(self.shown(shard)).await?;
        parts.into_inner().message().await.map(drop)
    }

    /// Gives the leader a snapshot of a victim's.
    async fn keep_shard(&self, victim: &Victim, step: u64) -> Result<(), Status> {
        let mut nodes = NodeHostClient::new(self.session.channel.clone());
        let header = v1::ShardHeader {
            incarnation: victim.incarnation,
            rank: victim.index,
            step,
            bytes: 4096,
        };
        let part = v1::ShardPart {
            header: Some(header),
            data: vec![7; 4096],
            xxh3: Some(1),
        };
        let kept = nodes.keep_shard(self.shown(tokio_stream::iter([part])));
        kept.await.map(drop)
    }
}

impl Broken {
    async fn lies_of_roles(&self, victims: &[Victim], status: &Value) {
        self.lies(victims);
        for victim in victims {
            refused("a link in another's name", self.attach(victim).await);
            let step = status["step"].as_u64().unwrap() + 1;
            refused("another's snapshot", self.keep_shard(victim, step).await);
        }
    }

    async fn reads_and_commands(&self, state: &Path) {
        for file in [
            "token",
            "authority.key",
            "../token",
            "store/db",
            "/etc/passwd",
        ] {
            refused(file, self.read_file(file).await);
            let path = state.join(file).display().to_string();
            refused(file, self.read_shard(&path).await);
        }
        // Its connection is of nodes: an operator's service is not there.
        let mut control = ControlClient::new(self.session.channel.clone());
        let stop = control.stop(self.shown(v1::StopRequest {})).await;
        refused("an operator's request", stop.map(drop));
        let status = control.get_status(v1::GetStatusRequest {}).await;
        refused("an operator's look", status.map(drop));
        // What it certified would be believed: it certifies nobody, with its connection alone.
        let mut nodes = NodeHostClient::new(self.session.channel.clone());
        let another = v1::EnrollRequest {
            name: "b".to_owned(),
            public_key: vec![9; 32],
        };
        refused("another's name", nodes.enroll(another).await.map(drop));
    }

    /// What the leader ordered so far.
    async fn told(&mut self) -> Vec<Down> {
        let patience = Duration::from_millis(200);
        let mut told = Vec::new();
        while let Ok(Ok(Some(order))) = timeout(patience, next(&mut self.stream.down)).await {
            if !matches!(order, Down::Beat(_)) {
                told.push(order);
            }
        }
        told
    }
}

fn ended(victim: &Victim) -> v1::RoleExited {
    v1::RoleExited {
        incarnation: victim.incarnation,
        exit: Some(Exit::Signal(9)),
        tail_of_log: "invented".to_owned(),
    }
}

#[track_caller]
fn refused(what: &str, answer: Result<(), Status>) -> Code {
    let status = answer.expect_err(what);
    let codes = [
        Code::PermissionDenied,
        Code::FailedPrecondition,
        Code::InvalidArgument,
        Code::NotFound,
        Code::Unauthenticated,
        Code::Unimplemented,
    ];
    assert!(codes.contains(&status.code()), "{what}: {status:?}");
    status.code()
}

#[test]
fn a_node_that_was_broken_into_speaks_for_no_role_of_another_and_costs_the_job_nothing() {
    let job = JobFile::small().set("job", "steps", STEPS as i64).nodes(&[
        ("a", FULL),
        ("b", MORE),
        ("broken", &[("agent", 1)]),
    ]);
    let mut cluster = Cluster::start(&job);
    cluster.join("b", &[]);
    let ready = |s: &Value| {
        let roles = s["roles"].as_array().unwrap();
        s["step"].as_u64().unwrap() >= 1 && roles.iter().all(|r| r["state"] == "running")
    };
    let before = cluster.leader.until("the first step with all roles", ready);
    let victims = victims(&before);
    assert_eq!(victims.len(), 7, "{before}");
    let token = JoinToken::read(&cluster.leader.state_dir().join("nodes.token")).unwrap();
    let addr = cluster.addr().to_owned();
    let state = cluster.leader.state_dir();
    let runtime = Runtime::new().unwrap();
    let mut broken = runtime.block_on(Broken::join(&addr, &token, &victims));
    runtime.block_on(broken.lies_of_roles(&victims, &before));
    // Of conversations, the words of whoever holds one are the ones that would count. Each may end meanwhile, and then
    // another one has its turn.
    let denied = Cell::new(0);
    cluster
        .leader
        .wait_for("a write in a holder's name", |leader| {
            let list = leader.ctl(&["traj", "ls", "--state", "running", "--json"]);
            for trajectory in trajectories(&list.stdout) {
                for victim in victims.iter().filter(|victim| victim.role == "agent") {
                    for answer in runtime.block_on(broken.write(victim, trajectory.key())) {
                        let code = refused("a word in another's name", answer);
                        denied.set(denied.get() + u32::from(code == Code::PermissionDenied));
                    }
                }
            }
            denied.get() > 0
        });
    runtime.block_on(broken.reads_and_commands(&state));
    let step = before["step"].as_u64().unwrap();
    let after = cluster.leader.until_step(step + 2);
    assert_eq!(after["incidents"].as_array().unwrap().len(), 0, "{after}");
    assert_eq!(processes(&before), processes(&after), "{}", cluster.logs());
    // Nothing is started there; it is told to end what it said that it runs.
    let told = runtime.block_on(broken.told());
    assert!(
        !told.iter().any(|order| matches!(order, Down::Spawn(_))),
        "{told:?}"
    );
    let ends = |victim: &Victim| {
        let is_it = |order: &Down| matches!(order, Down::Kill(kill) if kill.incarnation == victim.incarnation);
        told.iter().any(is_it)
    };
    assert!(victims.iter().all(ends), "{told:?}");
    drop(broken);
    assert_eq!(cluster.leader.finish(), 0, "{}", cluster.logs());
    assert_consumed_once(&cluster.leader.state_dir(), STEPS, PER_STEP);
}

/// A few of those that are listed, one a line.
fn trajectories(list: &[u8]) -> Vec<TrajectoryId> {
    let lines = serde_json::Deserializer::from_slice(list).into_iter::<Value>();
    let number = |value: &Value| value.as_u64().unwrap();
    let id = |t: Value| TrajectoryId {
        batch: number(&t["batch"]),
        group: number(&t["group"]).try_into().unwrap(),
        member: number(&t["member"]).try_into().unwrap(),
    };
    lines.map(|line| id(line.unwrap())).take(4).collect()
}
