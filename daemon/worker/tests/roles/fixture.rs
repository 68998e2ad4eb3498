//! Small models, jobs and role threads.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Instant;

use robust_identity::{EngineKey, EngineKeys};
use robust_role::{LinkEnd, RoleArgs};
use robust_shared::job::Job;
use robust_shared::phase::Phase;
use robust_transport::{Buffer, JobToken};
use robust_worker::StartError;
use robust_worker::model::config::Qwen3Config;
use robust_worker::model::flat::FlatParams;
use robust_worker::model::qwen3::Qwen3;
use robust_worker::model::{hf, single_thread};
use robust_worker::rollout::Observer;
use tokio::runtime::{Handle, Runtime};

use host_fake::FakeHost;

/// A model of a few thousand parameters that prefers some tokens to others.
pub fn model(seed: u64) -> Qwen3 {
    single_thread();
    let config = Qwen3Config {
        hidden_size: 16,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 8,
        intermediate_size: 32,
        ..Qwen3Config::demo(24)
    };
    let mut model = Qwen3::random(config, seed).unwrap();
    let louder = model.params().tensor() * 4.0;
    model.params_mut().copy_from(&louder).unwrap();
    model
}

/// What all members of a test's job know.
pub const TOKEN: &str = "a token of the tests";

/// The keys of engines that a process with that token makes.
pub fn engines() -> EngineKeys {
    EngineKeys::of(TOKEN.as_bytes())
}

/// A client that shows this key.
pub fn client(key: &EngineKey) -> reqwest::Client {
    let shown = [(
        "authorization".parse().unwrap(),
        key.bearer().parse().unwrap(),
    )];
    let client = reqwest::Client::builder().no_proxy();
    let client = client.default_headers(shown.into_iter().collect());
    client.build().unwrap()
}

pub fn token() -> JobToken {
    JobToken::new(TOKEN.as_bytes())
}

/// The weights of a model in a buffer of their own.
pub fn lying(model: &Qwen3) -> FlatParams {
    let memory = Buffer::new(model.params().len_bytes()).unwrap();
    memory.write_at(0, model.params().as_bytes()).unwrap();
    FlatParams::lying_in(model.params().layout().to_vec(), &memory).unwrap()
}

/// Hears nothing of an engine.
pub struct Deaf;

impl Observer for Deaf {
    fn phase(&self, _: Phase, _: u64) {}
    fn figures(&self, _: u64, _: usize) {}
}

pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

pub fn tokenizer_path() -> PathBuf {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fixtures/tokenizers/arith"
    );
    Path::new(folder).join("tokenizer.json")
}

/// Arguments for role `index`; the incarnation is told apart by the tests.
pub fn args(folder: &Path, host: &FakeHost, index: u32, incarnation: u64) -> RoleArgs {
    let model_folder = folder.join("model");
    if !model_folder.exists() {
        hf::save(&model(3), &model_folder).unwrap();
    }
    let text = format!(
        "[data]\nprompts = \"p\"\ntokenizer = {:?}\n[weights]\nchunk_kib = 4\n\
         [agent]\nmax_turns = 3\n[train]\nlr = 1e-2\n[detect]\ncorruption = {{ scrub_s = 0.2 }}\n",
        tokenizer_path()
    );
    let mut job = Job::parse(&text, Path::new("test.toml")).unwrap();
    job.model.path = Some(model_folder);
    let snapshot_dir = folder.join("snapshots");
    std::fs::create_dir_all(&snapshot_dir).unwrap();
    RoleArgs {
        job,
        index,
        incarnation,
        generation: 0,
        host_socket: host.socket.clone(),
        snapshot_dir,
        bind: std::net::Ipv4Addr::LOCALHOST.into(),
        token: token(),
        engines: engines(),
        roads: "ucx".to_owned(),
        end_within: None,
    }
}

/// A role on threads of its own instead of in a process of its own.
pub struct Running {
    thread: Option<JoinHandle<Result<LinkEnd, StartError>>>,
    _runtime: Runtime,
}

impl Running {
    pub fn start(
        args: RoleArgs,
        run: impl FnOnce(&RoleArgs, &Handle, Instant) -> Result<LinkEnd, StartError> + Send + 'static,
    ) -> Self {
        let runtime = runtime();
        let handle = runtime.handle().clone();
        let thread = std::thread::spawn(move || run(&args, &handle, Instant::now()));
        Self {
            thread: Some(thread),
            _runtime: runtime,
        }
    }

    pub fn end(mut self) -> LinkEnd {
        self.thread.take().unwrap().join().unwrap().unwrap()
    }
}
