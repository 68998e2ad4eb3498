//! A rollout replica: the sampler behind SGLang's HTTP API, with weights that change under way.
//!
//! ```text
//!   HTTP ── commands ──► engine thread: model + sampler ── tokens ──► HTTP
//!                              ▲ swap between two steps, or two turns
//!   daemon ── PullWeights ──► puller ── fetch ──► the slot that is not served ──► other rollouts
//! ```
//!
//! A version is fetched into the second slot and checked chunk by chunk; only when it is whole does
//! the engine take it over, so a failed pull never touches what is being served (I-4). The model's
//! parameters lie in the slot itself: with two slots there are two versions in memory and no third.
//! Requests under way go on: their keys and values are computed again, and their next tokens carry
//! the new version; or, as the job says, they end first. Each chunk can be read from here by other
//! rollouts as soon as it is verified.

mod about;
mod control;
mod digest;
mod engine;
mod generate;
mod http;
mod pulled;

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use robust_engine::EngineAddr;
use robust_http::{Door, Wire};
use robust_proto::v1::Hello;
use robust_proto::v1::host_message::Body;
use robust_role::pull::{self, Puller, Pulling};
use robust_role::{Deed, FromHost, Link, LinkEnd, RoleArgs, Stages};
use robust_shared::fault::At;
use robust_shared::footprint::Need;
use robust_shared::ids::Role;
use robust_shared::job::Job;
use robust_shared::phase::Phase;
use robust_transport::{Address, Transport};
use robust_weights::Slots;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::StartError;
use crate::manifest::tensor_specs_of;
use crate::memory;
use crate::model::config::Qwen3Config;
use crate::model::flat::{FlatParams, layout_of, size_of_element};
use crate::model::hf::CONFIG_FILE;
use crate::model::qwen3::Qwen3;
use crate::model::sampler::{Engine, EngineConfig, MAX_ROWS};

pub use about::About;
pub use digest::Digest;
pub use engine::{
    Command, EngineThread, Finish, Generate, NotSwapped, Observer, Pause, Piece, Refused, Standing,
    SwapRequest,
};
pub use http::{MAX_BODY_BYTES, MAX_WAITING, Served, Weights, serve};

use pulled::Pulled;

/// Tells the daemon what the engine does.
struct Reporter(Link);

impl Observer for Reporter {
    fn phase(&self, phase: Phase, version: u64) {
        self.0.phase(phase, version);
    }

    fn figures(&self, new_tokens: u64, running: usize) {
        self.0.add_tokens(new_tokens);
        self.0.set_running(running);
    }
}

/// What a spare of an engine does before it is one: libtorch is loaded, and has computed a token with a model of this
/// shape, whose weights it gives back. The memory for versions is the engine's own.
pub fn prepare(job: &Job) -> Result<(), StartError> {
    let folder = robust_role::model_folder(job)?;
    let config = Qwen3Config::read(&folder.join(CONFIG_FILE))?;
    memory::check(
        "a spare of a rollout",
        Need::of_rollout(&memory::shape(&config), job),
    )?;
    let model = Qwen3::zeroed(config)?;
    let ids = tch::Tensor::from_slice(&[0i64, 0]).view([1, 2]);
    // Nothing is made of it.
    let _ = tch::no_grad(|| model.token_logprobs(&ids, 1.0));
    Ok(())
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
    let model_folder = args.model_folder()?;
    let config = Qwen3Config::read(&model_folder.join(CONFIG_FILE))?;
    let about = About::of(&args.job, model_folder, &config)?;
    let (shape, dtype) = (memory::shape(&config), args.job.wire());
    memory::check("a rollout", Need::of_rollout(&shape, &args.job))?;
    let layout = layout_of(&config);
    let elements: usize = layout.iter().map(|spec| spec.len).sum();
    stages.end("process");
    let transport = Transport::start(args.transport()?)?;
    let slots = Slots::new(&transport, elements * size_of_element(dtype))?;
    stages.end("transport");
    let listener = listen(args.bind)?;
    let http_addr = listener.local_addr().map_err(no_port)?;
    let server = RoleArgs::engine_server()?;
    let asked_at = EngineAddr::said(http_addr, server.is_some());
    let pulling = Pulling::default();
    let facts = (Arc::clone(&slots), pulling.clone(), transport.addr());
    let engines = Arc::new(OnceLock::new());
    let hands = hands(
        pull::hands(Arc::clone(&slots), transport.clone()),
        Arc::clone(&engines),
    );
    let hello = move || hello(&facts.0, &facts.1, facts.2, &asked_at);
    let (link, mut inbox) = robust_role::start(runtime, args.link(role), hello, hands);
    link.counters().refused.told_by(transport.refused());
    link.give_way(transport.share(), args.job.weights.beside_generation);
    link.phase(Phase::Init, 0);
    // The weights lie where they are fetched to: the parameters need no memory of their own.
    let params = FlatParams::lying_as(dtype, layout.clone(), &slots.current())?;
    let engine = start_engine(args, Qwen3::with_params(config, params)?, link.clone())?;
    let commands = engine.commands();
    // It is the first that is set.
    let _ = engines.set(engine.commands());
    let weights: Weights = Arc::new({
        let slots = Arc::clone(&slots);
        move || digest::of(&slots)
    });
    let served = Served {
        commands: engine.commands(),
        weights,
        about,
        door: Door::new(
            [args.engine_key()],
            "the key of this engine, which the job's roles have",
        ),
        most: args.job.rollout.max_running as usize + MAX_WAITING,
        wire: server.map_or(Wire::Plain, Wire::Sealed),
    };
    runtime.spawn(http::run(listener, served));
    stages.end("model and http");
    tracing::info!(%http_addr, "start: {}", stages.line());
    let tensors = tensor_specs_of(&layout, dtype);
    let pulled = Arc::new(Pulled {
        commands,
        layout,
        dtype,
    });
    robust_role::scrub::start(&slots, args.scrub_every(role), link.clone())?;
    let filled = Arc::clone(&slots);
    let puller = Puller::start(transport, filled, tensors, pulled, link.clone(), pulling)?;
    loop {
        match inbox.blocking_recv() {
            Some(FromHost::Message(_, message)) => match message.body {
                Some(Body::Pull(pull)) => {
                    if slots.served().is_none() {
                        link.phase(Phase::PullWeights, pull.version);
                    }
                    puller.assign(&pull);
                }
                other => tracing::warn!(?other, "not for a rollout"),
            },
            Some(FromHost::Ended(end)) => return Ok(end),
            None => return Ok(LinkEnd::Shutdown),
        }
    }
}

/// Hands that reach the engine too; the others are those of whoever pulls.
fn hands(
    of_puller: impl Fn(Deed, Option<At>) -> Result<(), String> + Send + Sync + 'static,
    engine: Arc<OnceLock<Commands>>,
) -> impl Fn(Deed, Option<At>) -> Result<(), String> + Send + Sync + 'static {
    move |deed, at| match (deed, engine.get()) {
        (Deed::PauseEngine { lasts }, Some(engine)) => pause(engine.clone(), lasts),
        (Deed::PauseEngine { .. }, None) => Err("it has no engine yet".to_owned()),
        _ => of_puller(deed, at),
    }
}

/// For drills: what a client does that pauses the engine and comes back late.
fn pause(engine: Commands, lasts: Duration) -> Result<(), String> {
    let gone = |_| "its engine ended".to_owned();
    let (paused, _) = oneshot::channel();
    engine
        .send(Command::Pause(Pause::Keep, paused))
        .map_err(gone)?;
    let later = std::thread::Builder::new()
        .name("pause".into())
        .spawn(move || {
            std::thread::sleep(lasts);
            // One that ended meanwhile needs nobody to let it go on.
            let _ = engine.send(Command::Continue);
        });
    later
        .map(drop)
        .map_err(|e| format!("nobody would let it go on: {e}"))
}

/// What this replica is at the moment.
fn hello(slots: &Slots, pulling: &Pulling, transport: Address, http: &str) -> Hello {
    Hello {
        transport_addr: transport.to_string(),
        http_addr: http.to_owned(),
        ..pulling.hello(slots)
    }
}

fn start_engine(args: &RoleArgs, model: Qwen3, link: Link) -> Result<EngineThread, StartError> {
    let sizes = EngineConfig {
        max_seqs: args.job.rollout.max_running.max(1) as usize,
        max_rows: MAX_ROWS,
        max_len: memory::shape(model.config()).context(&args.job) as usize,
    };
    let engine = Engine::new(model.config(), sizes)?;
    let swap = args.job.rollout.swap;
    EngineThread::start(model, engine, swap, Box::new(Reporter(link)))
        .map_err(|_| StartError::thread("engine"))
}

fn listen(bind: IpAddr) -> Result<std::net::TcpListener, StartError> {
    let at = SocketAddr::new(bind, 0);
    let listener = std::net::TcpListener::bind(at).map_err(no_port)?;
    listener.set_nonblocking(true).map_err(no_port)?;
    Ok(listener)
}

fn no_port(source: std::io::Error) -> StartError {
    StartError::io("listening on", "an HTTP port", source)
}

/// Where commands for the engine go.
pub type Commands = Sender<Command>;
