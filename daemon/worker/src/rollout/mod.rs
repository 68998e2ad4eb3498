//! A rollout replica: the sampler behind SGLang's HTTP API, with weights that change under way.
//!
//! ```text
//!   HTTP ── commands ──► engine thread: model + sampler ── tokens ──► HTTP
//!                              ▲ swap between two steps
//!   daemon ── PullWeights ──► puller ── fetch ──► the buffer that is not served
//! ```
//!
//! A version is fetched into the second buffer and checked chunk by chunk; only then does the
//! engine take it over, so a failed pull never touches what is being served (I-4). Requests under
//! way go on: their keys and values are computed again, and their next tokens carry the new
//! version. From then on the buffer can be fetched from here as well.

mod engine;
mod generate;
mod http;
mod pull;
mod served;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use robust_proto::v1::host_message::Body;
use robust_shared::ids::Role;
use robust_shared::phase::Phase;
use robust_transport::Transport;
use tokio::runtime::Handle;

use crate::attach::manifest::tensor_specs;
use crate::attach::{self, FromHost, LinkEnd, RoleArgs, Stages, StartError};
use crate::model::config::Qwen3Config;
use crate::model::flat::layout_of;
use crate::model::hf::CONFIG_FILE;
use crate::model::qwen3::Qwen3;
use crate::model::sampler::{Engine, EngineConfig, MAX_ROWS};

pub use engine::{Command, EngineThread, Finish, Generate, Observer, Piece, Refused};
pub use http::{MAX_BODY_BYTES, serve};

use pull::Puller;
use served::Served;

/// Tells the daemon what the engine does.
struct Reporter(attach::Link);

impl Observer for Reporter {
    fn phase(&self, phase: Phase, version: u64) {
        self.0.phase(phase, version);
    }

    fn figures(&self, new_tokens: u64, running: usize) {
        self.0.add_tokens(new_tokens);
        self.0.set_running(running);
    }
}

/// Runs a replica until its link ends. `started` is when the process began.
pub fn run_rollout(
    args: &RoleArgs,
    runtime: &Handle,
    started: Instant,
) -> Result<LinkEnd, StartError> {
    run(Role::Rollout, args, runtime, started)
}

/// The same on the slot of a trainer's rank: it is paused while the rank has the slot.
pub fn run_hybrid(
    args: &RoleArgs,
    runtime: &Handle,
    started: Instant,
) -> Result<LinkEnd, StartError> {
    run(Role::Hybrid, args, runtime, started)
}

fn run(
    role: Role,
    args: &RoleArgs,
    runtime: &Handle,
    started: Instant,
) -> Result<LinkEnd, StartError> {
    let mut stages = Stages::since(started);
    let config = Qwen3Config::read(&args.model_folder()?.join(CONFIG_FILE))?;
    let layout = tensor_specs(&layout_of(&config));
    let bytes: u64 = layout.iter().map(|spec| spec.bytes).sum();
    stages.end("process");
    let transport = Transport::start(args.transport())?;
    let served = Arc::new(Served::new(&transport, bytes as usize)?);
    stages.end("transport");
    let listener = listen(args.bind)?;
    let http_addr = listener.local_addr().map_err(listen_error)?;
    let facts = (Arc::clone(&served), transport.addr());
    let (link, mut inbox) = attach::start(runtime, args.link(role), move || {
        facts.0.hello(facts.1, http_addr)
    });
    link.phase(Phase::Init, 0);
    let engine = start_engine(args, config, link.clone())?;
    let commands = engine.commands();
    runtime.spawn(http::run(listener, engine.commands()));
    stages.end("model and http");
    tracing::info!(%http_addr, "start: {}", stages.line());
    let puller = Puller::start(
        transport,
        Arc::clone(&served),
        commands,
        link.clone(),
        layout,
    )?;
    loop {
        match inbox.blocking_recv() {
            Some(FromHost::Message(_, message)) => match message.body {
                Some(Body::Pull(pull)) => {
                    if served.version().is_none() {
                        link.phase(Phase::PullWeights, pull.version);
                    }
                    puller.assign(pull);
                }
                other => tracing::warn!(?other, "not for a rollout"),
            },
            Some(FromHost::Ended(end)) => return Ok(end),
            None => return Ok(LinkEnd::Shutdown),
        }
    }
}

fn start_engine(
    args: &RoleArgs,
    config: Qwen3Config,
    link: attach::Link,
) -> Result<EngineThread, StartError> {
    let sizes = EngineConfig {
        max_seqs: args.job.rollout.max_running.max(1) as usize,
        max_rows: MAX_ROWS,
        max_len: config.max_position_embeddings as usize,
    };
    let engine = Engine::new(&config, sizes)?;
    let model = Qwen3::zeroed(config)?;
    EngineThread::start(model, engine, Box::new(Reporter(link)))
        .map_err(|_| StartError::Thread("engine"))
}

fn listen(bind: IpAddr) -> Result<std::net::TcpListener, StartError> {
    let at = SocketAddr::new(bind, 0);
    let listener = std::net::TcpListener::bind(at).map_err(listen_error)?;
    listener.set_nonblocking(true).map_err(listen_error)?;
    Ok(listener)
}

fn listen_error(source: std::io::Error) -> StartError {
    StartError::Io {
        doing: "listening on",
        path: "an HTTP port".into(),
        source,
    }
}

/// Where commands for the engine go.
pub type Commands = Sender<Command>;
