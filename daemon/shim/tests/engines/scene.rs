//! A shim with its engine, its daemon and its trainer, of which the tests play the last two.
//!
//! The tests and the benchmark share it, and neither uses all of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use host_fake::FakeHost;
use robust_identity::EngineKeys;
use robust_proto::manifest::canary_to_proto;
use robust_proto::v1::host_message::Body as Down;
use robust_proto::v1::pull_done::Result as Outcome;
use robust_proto::v1::{ByteRange, PullSource, PullWeights, ServedVersion, Shutdown};
use robust_role::serve::as_served;
use robust_shared::weights::TensorSpec;
use robust_transport::{Config, JobToken, Transport};
use robust_tree::{ENGINE_VARIABLE, leftovers};
use robust_weights::{Layout, Publisher};
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::kind::{FAKE, Models, Wish, real};
use super::reply::{Running, Said};

/// Real engines take a minute to start on a quiet machine.
const START: Duration = Duration::from_secs(400);
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(20);
const TOKEN: &str = "a token of the tests";
const CHUNK_BYTES: u64 = 64 << 10;
/// The incarnation that the shim has, and that of the trainer.
pub const LIFE: u64 = 7;
const PUBLISHER: u64 = 99;

/// A shim whose engine is up, and has no weights of the job yet.
pub struct Scene {
    pub models: Models,
    host: FakeHost,
    transport: Transport,
    publisher: Publisher,
    shim: Child,
    url: String,
    runtime: Runtime,
    /// Snapshots, logs, the job.
    folder: TempDir,
}

impl Scene {
    pub fn start(wish: &Wish) -> Self {
        let folder = TempDir::with_prefix_in("robust-shim-test.", "/dev/shm").unwrap();
        let models = Models::below(folder.path(), wish.size);
        let host = FakeHost::start(folder.path());
        let job = wish.job(&models.folder(1));
        let job_file = folder.path().join("job.json");
        std::fs::write(&job_file, serde_json::to_vec(&job).unwrap()).unwrap();
        let shim = shim(folder.path(), &job_file, &host.socket);
        let transport = Transport::start(Config {
            local: Some(folder.path().join("roads")),
            net: None,
            ..Config::new(JobToken::new(TOKEN.as_bytes()))
        });
        let transport = transport.unwrap();
        let publisher = Publisher::new(&transport, layout(&models)).unwrap();
        let mut scene = Self {
            models,
            host,
            transport,
            publisher,
            shim,
            url: String::new(),
            runtime: Runtime::new().unwrap(),
            folder,
        };
        scene.come_up();
        scene
    }

    fn come_up(&mut self) {
        let hello = self.host.hello(LIFE);
        self.url = format!("http://{}", hello.http_addr);
        let deadline = Instant::now() + START;
        while self.get("/health_generate").0 != 200 {
            let ended = self.shim.try_wait().unwrap();
            assert!(ended.is_none(), "the shim ended: {}", self.log());
            assert!(Instant::now() < deadline, "no engine: {}", self.log());
            std::thread::sleep(LOOK);
        }
    }

    /// Publishes a model as this version; its canary is the model's own.
    pub fn publish(&mut self, version: u64, model: u64) -> PullWeights {
        let all = self.models.tensors(model);
        let bytes: Vec<u8> = all.into_iter().flat_map(|(_, _, bytes)| bytes).collect();
        let published = self.publisher.publish(version, |to| to.write_at(0, &bytes));
        let mut served = as_served(&published.unwrap());
        served.canary = Some(canary_to_proto(&self.models.canary(model)));
        self.order(&served)
    }

    fn order(&self, served: &ServedVersion) -> PullWeights {
        let bytes = layout(&self.models).bytes as u64;
        let whole = ByteRange {
            src: 0,
            dst: 0,
            bytes,
        };
        PullWeights {
            version: served.version,
            manifest: served.manifest.clone(),
            sources: vec![PullSource {
                incarnation: PUBLISHER,
                transport_addr: self.transport.addr().to_string(),
                region: served.region.clone(),
                parts: vec![whole],
                starts: Vec::new(),
            }],
            canary: served.canary.clone(),
            order: 3,
        }
    }

    /// The trainer's memory fails.
    pub fn damage(&self, version: u64) {
        self.publisher.damage(version);
    }

    pub fn send(&self, order: &PullWeights) {
        self.host.send(LIFE, Down::Pull(order.clone()));
    }

    /// How the pull that was ordered ended: the kind of its failure with its reason.
    pub fn pulled(&self) -> Result<(), (String, String)> {
        match self.host.pull_done(LIFE).result.unwrap() {
            Outcome::Ok(_) => Ok(()),
            Outcome::Error(error) => Err((error.kind, error.reason)),
        }
    }

    /// Gives the engine a model as this version.
    pub fn load(&mut self, version: u64, model: u64) {
        let order = self.publish(version, model);
        self.send(&order);
        self.pulled()
            .unwrap_or_else(|error| panic!("{error:?}\n{}", self.log()));
    }

    /// Status and text of a reply; status 0 when none came.
    pub fn get(&self, path: &str) -> (u16, String) {
        self.get_within(path, PATIENCE)
    }

    pub fn get_within(&self, path: &str, time: Duration) -> (u16, String) {
        let request = client().get(format!("{}{path}", self.url));
        self.ask(request.timeout(time))
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, String) {
        self.post_to(&format!("{}{path}", self.url), body)
    }

    /// The same, to the engine itself.
    pub fn post_to(&self, url: &str, body: &Value) -> (u16, String) {
        let request = client().post(url);
        self.ask(request.json(body).timeout(PATIENCE))
    }

    /// Asks all of these at once, and reads every reply to its end.
    pub fn read_all(&self, url: &str, bodies: &[Value]) {
        let asked: Vec<_> = bodies
            .iter()
            .map(|body| {
                let request = client().post(url).json(body);
                self.runtime.spawn(async move {
                    let reply = request.send().await.unwrap().error_for_status().unwrap();
                    reply.bytes().await.unwrap().len()
                })
            })
            .collect();
        for one in asked {
            assert!(self.runtime.block_on(one).unwrap() > 0);
        }
    }

    /// Where the version that is served lies in shared memory.
    pub fn served_folder(&self, version: u64) -> String {
        let folder = self.owner().join(format!("weights/v{version}"));
        folder.display().to_string()
    }

    fn ask(&self, request: reqwest::RequestBuilder) -> (u16, String) {
        self.runtime.block_on(async {
            match request.send().await {
                Ok(reply) => (
                    reply.status().as_u16(),
                    reply.text().await.unwrap_or_default(),
                ),
                Err(error) => (0, error.to_string()),
            }
        })
    }

    /// A whole reply, which must be one.
    pub fn generate(&self, body: &Value) -> Said {
        let (status, text) = self.post("/generate", body);
        assert_eq!(status, 200, "{text}\n{}", self.log());
        Said::of(&serde_json::from_str(&text).unwrap())
    }

    /// Begins a stream.
    pub fn begin(&self, body: &Value) -> Running {
        let (sender, chunks) = channel();
        let request = client().post(format!("{}/generate", self.url));
        let request = request.json(body);
        self.runtime.spawn(async move {
            let Ok(mut reply) = request.send().await else {
                return;
            };
            let mut text = Vec::new();
            while let Ok(Some(piece)) = reply.chunk().await {
                text.extend_from_slice(&piece);
                while let Some(end) = text.windows(2).position(|pair| pair == b"\n\n") {
                    let event: Vec<u8> = text.drain(..end + 2).collect();
                    let data = event.strip_prefix(b"data: ").unwrap_or_default();
                    if let Ok(chunk) = serde_json::from_slice::<Value>(data) {
                        let _ = sender.send(chunk);
                    }
                }
            }
        });
        Running {
            chunks,
            said: Said::default(),
        }
    }

    /// The shim's process.
    pub fn shim(&self) -> u32 {
        self.shim.id()
    }

    /// The engine's processes that live, with their titles, the oldest first; without Python's helper,
    /// which an engine does not need.
    pub fn engine(&self) -> Vec<(i32, String)> {
        let owner = self.owner();
        let all = leftovers(&[(ENGINE_VARIABLE, owner.as_os_str())]).into_iter();
        let titled = all.map(|process| {
            let line = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            (process.pid.cast_signed(), line.trim().to_owned())
        });
        let mut found: Vec<(i32, String)> = titled
            .filter(|(_, line)| !line.contains("resource_tracker"))
            .collect();
        found.sort_unstable();
        found
    }

    fn owner(&self) -> PathBuf {
        self.folder.path().join("engine-rollout-0")
    }

    /// Waits until the shim is gone: its exit code and its last words.
    pub fn ended(&mut self) -> (i32, String) {
        let deadline = Instant::now() + PATIENCE;
        let status: ExitStatus = loop {
            if let Some(status) = self.shim.try_wait().unwrap() {
                break status;
            }
            assert!(
                Instant::now() < deadline,
                "the shim goes on: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(2));
        };
        let log = self.log();
        let words = log.lines().rev().find(|line| line.starts_with("error: "));
        let words = words.unwrap_or_else(|| panic!("no last words: {log}"));
        (status.code().unwrap_or(-1), words.to_owned())
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("shim.log")).unwrap_or_default()
    }

    /// What the engine holds of shared memory while it lives, and what is left of its instance after the
    /// next incarnation took its place.
    pub fn next_life_finds_nothing(&mut self) {
        let before = self.engine();
        let job = self.folder.path().join("job.json");
        self.shim = shim(self.folder.path(), &job, &self.host.socket);
        self.come_up();
        let after = self.engine();
        let stay: Vec<_> = before.iter().filter(|old| after.contains(old)).collect();
        assert!(
            stay.is_empty(),
            "{stay:?} of the life before are still there"
        );
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.shim.try_wait().unwrap().is_none() {
            self.host.send(LIFE, Down::Shutdown(Shutdown::default()));
            let deadline = Instant::now() + Duration::from_secs(30);
            while self.shim.try_wait().unwrap().is_none() && Instant::now() < deadline {
                std::thread::sleep(LOOK);
            }
            let _ = self.shim.kill();
            let _ = self.shim.wait();
        }
        end_all(&self.owner());
    }
}

/// Kills what bears this mark until nobody does.
fn end_all(owner: &Path) {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let left = leftovers(&[(ENGINE_VARIABLE, owner.as_os_str())]);
        if left.is_empty() || Instant::now() > deadline {
            return;
        }
        for process in left {
            let _ = process.kill();
        }
        std::thread::sleep(LOOK);
    }
}

/// A client with the key that the shim takes.
fn client() -> reqwest::Client {
    let key = EngineKeys::of(TOKEN.as_bytes()).of_engine(LIFE).bearer();
    let shown = [("authorization".parse().unwrap(), key.parse().unwrap())];
    let client = reqwest::Client::builder().default_headers(shown.into_iter().collect());
    client.build().unwrap()
}

fn shim(folder: &Path, job: &Path, socket: &Path) -> Child {
    let log = std::fs::File::options()
        .create(true)
        .append(true)
        .open(folder.join("shim.log"))
        .unwrap();
    Command::new(env!("CARGO_BIN_EXE_robust-shim"))
        .args(["rollout", "--index", "0", "--incarnation", "7", "--job"])
        .arg(job)
        .arg("--host-socket")
        .arg(socket)
        .arg("--snapshot-dir")
        .arg(folder)
        .env(robust_proto::JOB_TOKEN_VARIABLE, TOKEN)
        .env(FAKE, played())
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap()
}

fn layout(models: &Models) -> Layout {
    let mut offset = 0;
    let tensors = models.tensors(1).into_iter().map(|(name, shape, bytes)| {
        let spec = TensorSpec {
            name,
            dtype: "F32".to_owned(),
            shape: shape.into_iter().map(|n| n as u64).collect(),
            offset,
            bytes: bytes.len() as u64,
        };
        offset += spec.bytes;
        spec
    });
    let tensors: Vec<TensorSpec> = tensors.collect();
    Layout {
        bytes: usize::try_from(offset).unwrap(),
        tensors,
        chunk_bytes: CHUNK_BYTES,
        ranks: 1,
        full_every: 1,
    }
}

/// The program that plays the engines, beside the one under test.
fn played() -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_robust-shim")).with_file_name("fake-engine");
    let missing = real().is_none() && !path.exists();
    assert!(!missing, "{} is not built: run `make test`", path.display());
    path
}

/// What the engine that the tests play answers when it is started with a model.
pub fn played_answer(model: &Path, prompt: &[u32], tokens: usize) -> (Vec<u32>, Vec<f32>) {
    let mut engine = Command::new(played())
        .args([
            "--dialect",
            "sglang",
            "--port",
            "0",
            "--skip-tokenizer-init",
            "--model-path",
        ])
        .arg(model)
        .env(ENGINE_VARIABLE, model)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(engine.stdout.take().unwrap()).lines();
    let url = lines.find_map(|line| Some(line.unwrap().split_once("listening on ")?.1.to_owned()));
    let url = url.expect("it says where it listens");
    let body = serde_json::json!({
        "input_ids": prompt, "return_logprob": true,
        "sampling_params": { "max_new_tokens": tokens, "temperature": 0.0, "ignore_eos": true },
    });
    let request = client().post(format!("{url}/generate")).json(&body);
    let reply = Runtime::new().unwrap().block_on(async {
        let reply = request.send().await.unwrap();
        reply.json::<Value>().await.unwrap()
    });
    engine.kill().unwrap();
    engine.wait().unwrap();
    end_all(model);
    let pairs = reply["meta_info"]["output_token_logprobs"]
        .as_array()
        .unwrap();
    let id = |pair: &Value| pair[1].as_u64().unwrap() as u32;
    let logprob = |pair: &Value| pair[0].as_f64().unwrap() as f32;
    (
        pairs.iter().map(id).collect(),
        pairs.iter().map(logprob).collect(),
    )
}
