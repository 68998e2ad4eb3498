//! One real leader and many light nodes, which speak the protocol of nodes over real connections and start no process.
//!
//! ```text
//!  robustd ◄══ TLS, a connection a node ══ node.rs ── beats, samples, exits ── session.rs
//!     ▲ ▲                                     └─ instance.rs, a link each over the same connection
//!     │ └── calls ── rank.rs                        └─ agent.rs: conversations, turn by turn
//!     └──── turns ─────────────────────────────────────┘
//! ```
//! As on a real node, an instance's link and an agent's calls go over the node's own connection, and show its session.
mod agent;
mod instance;
mod ledger;
mod node;
mod process;
mod rank;
mod session;
mod shape;

pub use ledger::{Ledger, Waits};
pub use process::Used;
pub use session::{Door, Session, Stream, next, say};
pub use shape::Shape;

use crate::{Daemon, bin};
use node::Node;
use robustd::nodes::JoinToken;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Connections that are made at a time; the leader has 16 places for callers of one address that have proven nothing.
const DOORS: usize = 8;

/// A leader and its nodes; all of it ends with this value.
pub struct Fleet {
    runtime: Option<Runtime>,
    leader: Daemon,
    shape: Shape,
    ledger: Arc<Ledger>,
    strikes: Vec<UnboundedSender<usize>>,
    struck: usize,
    /// The files that the job names.
    _files: TempDir,
}

impl Fleet {
    /// Starts a leader, and has every node join.
    pub fn start(shape: Shape) -> Self {
        let files = tempfile::Builder::new().prefix("robust-load.").tempdir();
        let files = files.expect("a folder");
        std::fs::create_dir(files.path().join("model")).expect("a folder");
        for (name, text) in [
            ("data.jsonl", "{\"prompt\":\"1+1=\",\"answer\":\"2\"}\n"),
            ("tokenizer.json", "{}"),
            ("model/config.json", "{}"),
            ("model/model.safetensors", "{}"),
        ] {
            std::fs::write(files.path().join(name), text).expect("a file");
        }
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = free.local_addr().expect("its address").to_string();
        drop(free);
        let robustd = bin("robustd").to_string_lossy().into_owned();
        let command = vec![robustd, "--listen-nodes".to_owned(), addr.clone()];
        // The leader's own node has no slots: it starts no role.
        let env = [("ROBUST_WORKER", "/bin/true")];
        let leader = Daemon::start_by(&shape.job(files.path()), &env, command);
        let token = JoinToken::read(&leader.state_dir().join("nodes.token")).expect("a token");
        let runtime = Runtime::new().expect("a runtime");
        let (token, ledger) = (Arc::new(token), Arc::new(Ledger::default()));
        let doors = Arc::new(Semaphore::new(DOORS));
        let mut strikes = Vec::new();
        for number in 0..shape.nodes {
            let (strike, struck) = unbounded_channel();
            strikes.push(strike);
            let node = Node {
                number,
                shape,
                addr: addr.clone(),
                token: Arc::clone(&token),
                ledger: Arc::clone(&ledger),
                doors: Arc::clone(&doors),
                strikes: struck,
            };
            runtime.spawn(node.run());
        }
        Self {
            runtime: Some(runtime),
            leader,
            shape,
            ledger,
            strikes,
            struck: 0,
            _files: files,
        }
    }

    /// What was heard.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What the leader's process used so far.
    pub fn leader_used(&self) -> Used {
        let child = self.leader.child.as_ref().expect("a leader runs");
        Used::by(child.id()).expect("the leader is in /proc")
    }

    /// Waits until every instance is linked and turns are stored; `seen` is told of the links meanwhile.
    pub fn until_it_works(&self, patience: Duration, mut seen: impl FnMut(&Ledger)) {
        let (start, all) = (Instant::now(), u64::from(self.shape.all()));
        while self.ledger.linked.load(Ordering::Relaxed) < all
            || self.ledger.appends.load(Ordering::Relaxed) == 0
        {
            seen(&self.ledger);
            assert!(start.elapsed() < patience, "{}", self.words());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// An instance ends by itself, each time one of another node.
    pub fn strike(&mut self) {
        // Far from its neighbours, whose number of nodes it has no factor with.
        let node = self.struck * 7919 % self.strikes.len();
        // A node's task ends with the runtime only.
        let _ = self.strikes[node].send(self.struck);
        self.struck += 1;
    }

    /// Copies what the leader printed and logged to this folder.
    pub fn keep_logs(&self, folder: &Path) {
        std::fs::create_dir_all(folder).expect("a folder");
        for name in ["out.log", "err.log"] {
            let kept = folder.join(format!("{}-{name}", self.shape.nodes));
            std::fs::copy(self.leader.dir.path().join(name), kept).expect("the log is copied");
        }
    }

    /// How it stands, for whoever waited in vain.
    pub fn words(&self) -> String {
        format!("{:?}\n{}", self.ledger, self.leader.logs())
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
