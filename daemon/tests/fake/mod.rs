//! Role processes without libtorch or UCX: they keep the contract and compute next to nothing. The
//! test binary runs itself as such a process, through a script that stands for `robust-worker`.
//!
//! What they were acknowledged, and what follows from acknowledged things, they write to the file that
//! [`LOG`] names: evidence that lies outside of the daemon's reach.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
pub mod agent;
mod faults;
pub mod rollout;
mod trainer;

use hyper_util::rt::TokioIo;
use robust_proto::manifest::to_proto;
use robust_proto::v1::role_host_client::RoleHostClient;
use robust_proto::v1::{self, HostMessage, RoleMessage, host_message, role_message::Body};
use robust_shared::ids::WeightVersion;
use robust_shared::weights::{Manifest, TensorSpec};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::sync::mpsc::UnboundedSender;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// Where acknowledgements are written, a line each; nowhere when it is not set.
pub const LOG: &str = "FAKE_LOG";
/// How many milliseconds an update takes.
pub const UPDATE_MS: &str = "FAKE_UPDATE_MS";
/// Set: ranks sleep through their update, as one does that waits for its peers.
pub const WAITS: &str = "FAKE_WAITS";

/// What every role may change while it runs; repeated in each hello.
pub struct Fake {
    pub hello: v1::Hello,
    pub snapshots: PathBuf,
    replies: HashMap<String, v1::CallReply>,
    /// Of the trainer, as its last restore said.
    ranks: usize,
    trained: trainer::Trained,
    faults: faults::Faults,
}

/// Writes down what was acknowledged, in one piece: whoever is killed leaves whole lines.
pub fn note(line: &str) {
    let Some(path) = std::env::var_os(LOG) else {
        return;
    };
    let mut log = File::options()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    log.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// A way to say something to the daemon.
pub type Up = UnboundedSender<RoleMessage>;

pub fn say(up: &Up, body: Body) {
    let _ = up.send(RoleMessage { body: Some(body) });
}

pub async fn connect(socket: PathBuf) -> Result<RoleHostClient<Channel>, tonic::transport::Error> {
    let dial = move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    };
    let channel = Endpoint::from_static("http://roles")
        .connect_with_connector(tower::service_fn(dial))
        .await?;
    Ok(RoleHostClient::new(channel))
}

/// A version with this content: the same on every one of the ranks.
pub fn served(version: u64, content: u64, ranks: usize) -> v1::ServedVersion {
    let (name, dtype, shape) = ("w".to_owned(), "F32".to_owned(), vec![2]);
    let tensor = TensorSpec {
        name,
        dtype,
        shape,
        offset: 0,
        bytes: 8,
    };
    let buffer = content.to_le_bytes();
    let built = Manifest::build(WeightVersion(version), &buffer, 4, vec![tensor]).unwrap();
    let whole = 0..built.bytes;
    let built = built.held_by(vec![whole; ranks]).unwrap();
    let region = Some(v1::Region {
        key: vec![1],
        bytes: built.bytes,
        patches: Vec::new(),
    });
    v1::ServedVersion {
        version,
        manifest: Some(to_proto(&built)),
        region,
        canary: None,
    }
}

/// What a puller serves once it has what it was sent to fetch.
fn pulled(pull: v1::PullWeights) -> v1::ServedVersion {
    let manifest = pull.manifest.unwrap();
    let region = Some(v1::Region {
        key: vec![1],
        bytes: manifest.bytes,
        patches: Vec::new(),
    });
    v1::ServedVersion {
        version: pull.version,
        manifest: Some(manifest),
        region,
        canary: None,
    }
}

/// Of the certificate in this text, which is used for nothing else here.
fn fingerprint(pem: &str) -> String {
    let first = robust_identity::Fingerprint::of_pem(pem).unwrap();
    first.to_string()
}

/// Runs the role that the command line names, until it is told to end or fenced.
pub fn run(args: &str) {
    let words: Vec<&str> = args.split_whitespace().collect();
    let after = |name: &str| words[words.iter().position(|w| *w == name).unwrap() + 1].to_owned();
    let served = rollout::bind(words[0]);
    let bound = served.as_ref().map(|(socket, _)| socket.local_addr());
    let http_addr = bound.map_or("127.0.0.1:1".to_owned(), |at| at.unwrap().to_string());
    let hello = v1::Hello {
        role: words[0].to_owned(),
        index: after("--index").parse().unwrap(),
        incarnation: after("--incarnation").parse().unwrap(),
        generation: after("--generation").parse().unwrap(),
        pid: std::process::id(),
        transport_addr: "127.0.0.1:1".to_owned(),
        http_addr,
        gradients: vec![v1::Region::default(); 2],
        certificate: std::env::var(robust_proto::IDENTITY_VARIABLE)
            .map_or_else(|_| String::new(), |pem| fingerprint(&pem)),
        answers_pings: true,
        ..Default::default()
    };
    let snapshots = PathBuf::from(after("--snapshot-dir"));
    let mut fake = Fake {
        hello,
        snapshots,
        replies: HashMap::new(),
        ranks: 0,
        trained: trainer::Trained::default(),
        faults: faults::Faults::default(),
    };
    let socket = PathBuf::from(after("--host-socket"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let code = runtime.block_on(async {
        if let Some((socket, folder)) = served {
            tokio::spawn(rollout::serve(socket, folder, fake.hello.incarnation));
        }
        loop {
            if let Some(code) = fake.link(&socket).await {
                return code;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    std::process::exit(code);
}

impl Fake {
    /// One link; the exit code when the role is to end.
    async fn link(&mut self, socket: &Path) -> Option<i32> {
        let mut client = connect(socket.to_owned()).await.ok()?;
        let (up, messages) = tokio::sync::mpsc::unbounded_channel();
        say(&up, Body::Hello(self.hello.clone()));
        let mut down = match client.attach(UnboundedReceiverStream::new(messages)).await {
            Ok(answer) => answer.into_inner(),
            Err(status) if status.code() == tonic::Code::FailedPrecondition => return Some(3),
            Err(_) => return None,
        };
        while let Ok(Some(HostMessage {
            body: Some(message),
        })) = down.message().await
        {
            match message {
                host_message::Body::Shutdown(_) => return Some(0),
                host_message::Body::Call(call) => {
                    let reply = self.answer(&up, call).await;
                    say(&up, Body::Reply(reply));
                }
                host_message::Body::Pull(pull) => {
                    self.enter(&up, "pull").await;
                    let (version, order) = (pull.version, pull.order);
                    let done = v1::PullDone {
                        version,
                        order,
                        result: Some(self.pull(pull)),
                    };
                    say(&up, Body::PullDone(done));
                }
                host_message::Body::Dispatch(dispatch) => {
                    let me = self.hello.incarnation;
                    tokio::spawn(agent::converse(client.clone(), me, dispatch));
                }
                host_message::Body::Fault(fault) => self.arm(&up, fault).await,
                host_message::Body::Disarm(disarm) => self.disarm(disarm.id),
                host_message::Body::Ping(v1::Ping { number }) => {
                    say(&up, Body::Pong(v1::Pong { number }));
                }
                host_message::Body::Identity(new) => {
                    self.hello.certificate = fingerprint(&new.pem);
                    let taken = v1::IdentityTaken {
                        fingerprint: self.hello.certificate.clone(),
                        error: String::new(),
                    };
                    say(&up, Body::IdentityTaken(taken));
                }
                host_message::Body::Revoke(_)
                | host_message::Body::Welcome(_)
                | host_message::Body::Gone(_) => {}
            }
        }
        None
    }

    /// Has what it is sent for at once, unless a source has a fault.
    fn pull(&mut self, pull: v1::PullWeights) -> v1::pull_done::Result {
        if let Some(error) = faults::pull_error(&self.snapshots, self.hello.incarnation, &pull) {
            return v1::pull_done::Result::Error(error);
        }
        let (version, served) = (pull.version, pulled(pull));
        self.hello.version = Some(version);
        self.hello.served = Some(served.clone());
        v1::pull_done::Result::Ok(served)
    }
}
