//! Sources and pullers as real processes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// Nothing in these tests takes so long; a test that waits for it has failed.
const LIMIT: Duration = Duration::from_secs(30);

pub const MIB: usize = 1 << 20;

const SHORT: [&str; 4] = ["--dtype", "BF16", "--road", "tls"];

/// A source's silence after which it counts as failed, in the tests.
pub const STALL: Duration = Duration::from_millis(700);

/// A started process. Killed when dropped.
pub struct Node {
    child: Child,
    stdin: Option<ChildStdin>,
    told: Receiver<Value>,
    pub addr: String,
    pub id: u64,
}

/// What a source serves.
#[derive(Clone, Copy)]
pub struct Version {
    pub version: u64,
    pub bytes: usize,
    pub chunk: usize,
    pub seed: u64,
    pub common: usize,
}

impl Version {
    pub fn new(version: u64, bytes: usize, chunk: usize) -> Self {
        let (seed, common) = (version, 0);
        Self {
            version,
            bytes,
            chunk,
            seed,
            common,
        }
    }
}

impl Node {
    /// Starts the program; `wrap` goes before it, as for another network namespace.
    pub fn start(id: u64, wrap: &[String], args: &[String]) -> Self {
        let program = env!("CARGO_BIN_EXE_robust-weights").to_owned();
        let mut line = wrap.iter().cloned().chain([program]);
        let mut command = Command::new(line.next().unwrap());
        command.args(line).args(args);
        command.env("ROBUST_WEIGHTS_TOKEN", "test");
        command.env("UCX_HANDLE_ERRORS", "none");
        // UCX would write its warnings between the lines.
        command.env("UCX_LOG_FILE", "stderr");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, told) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).expect("a line of JSON");
                if sender.send(value).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        let mut node = Node {
            child,
            stdin,
            told,
            addr: String::new(),
            id,
        };
        let listening = node.wait_for("listening", |_| true);
        node.addr = listening["addr"].as_str().unwrap().to_owned();
        node
    }

    pub fn tell(&mut self, wish: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{wish}").unwrap();
        stdin.flush().unwrap();
    }

    /// The next line of this kind for which `found` holds; others are dropped.
    pub fn wait_for(&mut self, kind: &str, found: impl Fn(&Value) -> bool) -> Value {
        let until = Instant::now() + LIMIT;
        let mut dropped = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.told.recv_timeout(left) {
                Ok(line) => match line.get(kind) {
                    Some(value) if found(value) => return value.clone(),
                    _ => dropped.push(line),
                },
                Err(RecvTimeoutError::Timeout) => {
                    panic!("node {} said {dropped:?}, never {kind}", self.id)
                }
                Err(RecvTimeoutError::Disconnected) => panic!("node {} ended", self.id),
            }
        }
    }

    /// How the order for `version` ended: `ok`, or the kind of error and the source at fault.
    pub fn wait_done(&mut self, version: u64) -> (String, Option<u64>) {
        let done = self.wait_for("done", |done| done["version"] == version);
        let result = done["result"].as_str().unwrap().to_owned();
        (result, done["source"].as_u64())
    }

    /// Bytes that came over the network so far.
    pub fn fetched(&mut self) -> u64 {
        self.tell(&json!("stats"));
        let stats = self.wait_for("stats", |_| true);
        stats["fetched"].as_u64().unwrap()
    }

    /// The version served; panics if a chunk of it is not the manifest's.
    pub fn checked(&mut self) -> Option<u64> {
        self.tell(&json!("check"));
        let checked = self.wait_for("checked", |_| true);
        assert_eq!(checked["wrong"], json!([]), "node {}", self.id);
        checked["version"].as_u64()
    }

    pub fn corrupt(&mut self, offset: usize, len: usize) {
        self.tell(&json!({"corrupt": {"offset": offset, "len": len}}));
        self.wait_for("corrupted", |_| true);
    }

    /// Sends a signal to exactly this child. One that is to stand still does so when this returns: on a
    /// machine that is busy its threads go on for a while otherwise.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32);
        kill(pid, signal).unwrap();
        if signal == Signal::SIGSTOP {
            let stopped = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOWAIT;
            waitid(Id::Pid(pid), stopped).unwrap();
        }
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that serves a version.
pub struct Source {
    pub node: Node,
    pub manifest: Value,
    pub key: String,
    patches: Value,
}

impl Source {
    pub fn start(id: u64, version: Version) -> Self {
        Self::start_in(id, version, &[], "127.0.0.1")
    }

    /// One whose versions are bfloat16.
    pub fn of_short_words(id: u64, version: Version) -> Self {
        Self::start_as(id, version, &[], "127.0.0.1", &SHORT)
    }

    /// The same, of whose versions every so many-th comes whole.
    pub fn with_full_versions(id: u64, version: Version, full_every: u64) -> Self {
        let every = full_every.to_string();
        let further = [&SHORT[..], &["--full-every", &every]].concat();
        Self::start_as(id, version, &[], "127.0.0.1", &further)
    }

    pub fn start_in(id: u64, version: Version, wrap: &[String], bind: &str) -> Self {
        Self::start_as(id, version, wrap, bind, &[])
    }

    fn start_as(id: u64, version: Version, wrap: &[String], bind: &str, further: &[&str]) -> Self {
        let mut args = node_args("source", version.bytes, bind);
        args.extend(further.iter().map(|&arg| arg.to_owned()));
        let numbers = [
            ("--version", version.version),
            ("--chunk-bytes", version.chunk as u64),
            ("--seed", version.seed),
            ("--common-chunks", version.common as u64),
        ];
        for (name, number) in numbers {
            args.extend([name.to_owned(), number.to_string()]);
        }
        let mut source = Source {
            node: Node::start(id, wrap, &args),
            manifest: Value::Null,
            key: String::new(),
            patches: json!([]),
        };
        source.hear();
        source
    }

    /// Other bytes as the next version.
    pub fn publish(&mut self, version: u64) {
        let publish = json!({"version": version, "seed": version});
        self.node.tell(&json!({"publish": publish}));
        self.hear();
    }

    /// The next version: this one, with so many of a million words moved by one.
    pub fn step(&mut self, version: u64, changed_ppm: u32) {
        let seed = version;
        let step = json!({"version": version, "seed": seed, "changed_ppm": changed_ppm});
        self.node.tell(&json!({"step": step}));
        self.hear();
    }

    /// The bytes of this seed as the next version, but for this part, which is like nothing before.
    pub fn publish_but(&mut self, version: u64, seed: u64, offset: usize, len: usize) {
        let publish = json!({"version": version, "seed": seed, "replace": [offset, len]});
        self.node.tell(&json!({"publish": publish}));
        self.hear();
    }

    /// The next version by a step, but for this part, which is like nothing before.
    pub fn step_but(&mut self, version: u64, changed_ppm: u32, offset: usize, len: usize) {
        let mut step = json!({"version": version, "seed": version, "changed_ppm": changed_ppm});
        step["replace"] = json!([offset, len]);
        self.node.tell(&json!({"step": step}));
        self.hear();
    }

    fn hear(&mut self) {
        self.manifest = self.node.wait_for("manifest", |_| true);
        let started = self.node.wait_for("started", |_| true);
        self.key = started["key"].as_str().unwrap().to_owned();
        self.patches = started["patches"].clone();
    }

    /// Its version.
    pub fn version(&self) -> u64 {
        self.manifest["version"].as_u64().unwrap()
    }

    /// Bytes of that.
    pub fn bytes(&self) -> usize {
        self.manifest["bytes"].as_u64().unwrap() as usize
    }

    /// Whether it has what makes its version of the one before.
    pub fn has_patches(&self) -> bool {
        self.links() > 0
    }

    /// Of how many versions before, one after the other, it has what makes the next one.
    pub fn links(&self) -> usize {
        self.patches.as_array().unwrap().len()
    }

    /// As a source of all its bytes.
    pub fn line(&self) -> Value {
        json!({"id": self.node.id, "addr": self.node.addr, "key": self.key, "patches": self.patches})
    }

    /// As a source of this part.
    pub fn part(&self, start: usize, end: usize) -> Value {
        let mut line = self.line();
        line["parts"] = json!([[start, start, end - start]]);
        line
    }
}

/// A process that pulls and relays.
pub struct Puller {
    pub node: Node,
    key: String,
    patches: Value,
}

impl Puller {
    pub fn start(id: u64, bytes: usize) -> Self {
        Self::start_in(id, bytes, &[], "127.0.0.1")
    }

    pub fn start_in(id: u64, bytes: usize, wrap: &[String], bind: &str) -> Self {
        Self::start_as(id, wrap, &node_args("pull", bytes, bind))
    }

    /// One of versions of bfloat16.
    pub fn of_short_words(id: u64, bytes: usize) -> Self {
        let mut args = node_args("pull", bytes, "127.0.0.1");
        args.extend(SHORT.map(str::to_owned));
        Self::start_as(id, &[], &args)
    }

    fn start_as(id: u64, wrap: &[String], args: &[String]) -> Self {
        let node = Node::start(id, wrap, args);
        let (key, patches) = (String::new(), json!([]));
        Puller { node, key, patches }
    }

    /// Orders a pull and waits until it began, so that others may read here.
    pub fn order(&mut self, manifest: &Value, sources: &[Value]) {
        let order = json!({"order": {"manifest": manifest, "sources": sources}});
        self.node.tell(&order);
        let version = &manifest["version"];
        let started = self.node.wait_for("started", |s| s["version"] == *version);
        self.key = started["key"].as_str().unwrap().to_owned();
        self.patches = started["patches"].clone();
    }

    /// Whether it passes on what makes its version of the one before.
    pub fn has_patches(&self) -> bool {
        self.links() > 0
    }

    /// The links that it passes on.
    pub fn links(&self) -> usize {
        self.patches.as_array().unwrap().len()
    }

    /// As a source for others, complete or not.
    pub fn line(&self) -> Value {
        json!({"id": self.node.id, "addr": self.node.addr, "key": self.key, "patches": self.patches})
    }

    /// Waits until so many bytes have arrived.
    pub fn wait_bytes(&mut self, version: u64, bytes: u64) {
        self.node.wait_for("progress", |progress| {
            progress["version"] == version && progress["bytes"].as_u64().unwrap() >= bytes
        });
    }
}

fn node_args(command: &str, bytes: usize, bind: &str) -> Vec<String> {
    let (bytes, stall) = (bytes.to_string(), STALL.as_millis().to_string());
    let args = [
        command,
        "--bytes",
        &bytes,
        "--bind",
        bind,
        "--stall-ms",
        &stall,
    ];
    args.map(str::to_owned).to_vec()
}
