//! An agent worker: conversations between a model and its tool.
//!
//! ```text
//!   Dispatch ──► stored turns ──► ┌─► Route ──► /generate ──► turn complete ──► tool call? ─┐
//!                                 │     ▲           │ broken                       │ yes   │ no
//!                                 │     └───────────┘ (goes on elsewhere           ▼       │
//!                                 │                    from the tokens so far)    tool     │
//!                                 │  AppendSpans (durable), again and again        │       │
//!                                 └──────────── AppendTurn (durable) ◄─────────────┤       ▼
//!                                       its tool is unable: given back ◄───────────┘
//!                                                            AppendTurn ──► reward ──► Finish
//! ```
//!
//! A turn counts once the daemon has stored it (I-2), and so do its tokens: those of a turn under
//! way are stored while it is generated, `agent.durable_every_ms` apart. A rollout's death costs
//! nothing, because the tokens that arrived are sent along to the next one; this worker's own death
//! costs the tokens since the last that were acknowledged, and who holds the trajectory next goes on
//! after those, with the same ones.

mod conversation;
mod generate;
mod host;
mod kept;
mod rollouts;
mod tools;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use robust_proto::v1::host_message::Body;
use robust_proto::v1::{Dispatch, Hello};
use robust_role::{FromHost, Link, LinkEnd, RoleArgs, Stages};
use robust_shared::ids::Role;
use robust_shared::phase::Phase;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

use crate::StartError;
use crate::memory;
use crate::model::config::Qwen3Config;
use crate::model::hf::CONFIG_FILE;
use crate::model::tokenizer::Tokenizer;
use crate::tool::Calculator;

use conversation::Conversation;
use host::Host;
use rollouts::Rollouts;
use tools::{Tools, Trouble};

/// What all conversations of a worker share.
struct Worker {
    host: Host,
    link: Link,
    http: reqwest::Client,
    tokenizer: Tokenizer,
    tool: Calculator,
    /// Tokens that prompt, turns and results may have together.
    max_len: usize,
    max_turns: u32,
    max_new_tokens: usize,
    temperature: f64,
    /// Time between two stores of a turn's tokens.
    durable_every: Duration,
    slots: Semaphore,
    /// Held while the number of conversations is counted and told.
    reporting: Mutex<()>,
    leases: Leases,
    rollouts: Rollouts,
    tools: Tools,
}

/// The trajectories of this worker; a watch that becomes true is a revocation.
#[derive(Clone, Default)]
struct Leases(Arc<Mutex<BTreeMap<u64, watch::Sender<bool>>>>);

/// What a conversation holds of its lease.
type Revoked = watch::Receiver<bool>;

/// Runs a worker until its link ends, with `robust-calc` beside this executable as its tool.
/// `started` is when the process began.
pub fn run(args: &RoleArgs, runtime: &Handle, started: Instant) -> Result<LinkEnd, StartError> {
    run_with(None, args, runtime, started)
}

/// The same with another program as the calculator.
pub fn run_with_calculator(
    program: PathBuf,
    args: &RoleArgs,
    runtime: &Handle,
    started: Instant,
) -> Result<LinkEnd, StartError> {
    run_with(Some(program), args, runtime, started)
}

fn run_with(
    program: Option<PathBuf>,
    args: &RoleArgs,
    runtime: &Handle,
    started: Instant,
) -> Result<LinkEnd, StartError> {
    let mut stages = Stages::since(started);
    stages.end("process");
    let (leases, rollouts) = (Leases::default(), Rollouts::new());
    let (held, awaited) = (leases.clone(), rollouts.clone());
    let hello = move || Hello {
        leases: held.all(),
        rollouts: awaited.awaited(),
        ..Default::default()
    };
    let trouble = Trouble::default();
    let struck = trouble.clone();
    let hands = move |deed, at| struck.strike(deed, at);
    let (link, mut inbox) = robust_role::start(runtime, args.link(Role::Agent), hello, hands);
    link.phase(Phase::Init, 0);
    let worker = Arc::new(prepare(
        args,
        runtime,
        link,
        (leases, rollouts, trouble, program),
    )?);
    stages.end("attach and tokenizer");
    tracing::info!("start: {}", stages.line());
    worker.report();
    loop {
        match inbox.blocking_recv() {
            Some(FromHost::Message(_, message)) => match message.body {
                Some(Body::Dispatch(dispatch)) => Worker::dispatch(&worker, runtime, dispatch),
                Some(Body::Revoke(revoke)) => worker.leases.revoke(revoke.trajectory),
                Some(Body::Gone(gone)) => worker.rollouts.is_gone(gone.incarnation),
                other => tracing::warn!(?other, "not for an agent"),
            },
            Some(FromHost::Ended(end)) => return Ok(end),
            None => return Ok(LinkEnd::Shutdown),
        }
    }
}

fn prepare(
    args: &RoleArgs,
    runtime: &Handle,
    link: Link,
    (leases, rollouts, trouble, program): (Leases, Rollouts, Trouble, Option<PathBuf>),
) -> Result<Worker, StartError> {
    let job = &args.job;
    let model = args.model_folder()?;
    let config = Qwen3Config::read(&model.join(CONFIG_FILE))?;
    let (timeout, memory_mb) = (job.agent.tool.timeout(), job.agent.tool.memory_mb);
    let tool = match program {
        Some(program) => Calculator {
            program,
            timeout,
            memory_mb,
        },
        None => Calculator::beside_executable(timeout, memory_mb)
            .map_err(|source| StartError::io("finding", "robust-calc", source))?,
    };
    let _on_runtime = runtime.enter();
    Ok(Worker {
        host: Host::new(&args.host_socket, link.clone(), args.incarnation),
        link,
        http: generate::client().map_err(|error| {
            StartError::io("making", "HTTP client", std::io::Error::other(error))
        })?,
        tokenizer: Tokenizer::of_data(job, model)?,
        tool,
        max_len: memory::shape(&config).context(job) as usize,
        max_turns: job.agent.max_turns,
        max_new_tokens: job.rollout.max_new_tokens as usize,
        temperature: job.rollout.temperature,
        durable_every: Duration::from_millis(job.agent.durable_every_ms),
        slots: Semaphore::new(job.agent.concurrency.max(1) as usize),
        reporting: Mutex::default(),
        leases,
        rollouts,
        tools: Tools::new(trouble, &job.agent.tool),
    })
}

impl Worker {
    fn dispatch(worker: &Arc<Self>, runtime: &Handle, dispatch: Dispatch) {
        let trajectory = dispatch.trajectory;
        let Some(mut revoked) = worker.leases.take(trajectory) else {
            // The daemon restarted and does not know that it had said so before.
            tracing::debug!(trajectory, "dispatched again, is under way");
            return;
        };
        worker.report();
        let worker = Arc::clone(worker);
        runtime.spawn(async move {
            let ended = tokio::select! {
                ended = Conversation::run(&worker, dispatch) => ended,
                // The sender lives in the lease; it changes when it is revoked, once.
                _ = async { revoked.wait_for(|revoked| *revoked).await.is_ok() } => Ok(()),
            };
            worker.leases.release(trajectory, &revoked);
            worker.report();
            if let Err(reason) = ended {
                tracing::warn!(trajectory, %reason, "gives a trajectory back");
                worker.link.returned(trajectory, reason);
            }
        });
    }

    fn report(&self) {
        // What is counted last is said last.
        let _said_in_order = self
            .reporting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let running = self.leases.count();
        self.link.set_running(running);
        self.link.phase(self.phase(running), 0);
    }
}

impl Leases {
    /// None if it is held already. One that was revoked may be given here again before its first
    /// conversation noticed.
    fn take(&self, trajectory: u64) -> Option<Revoked> {
        let mut held = self.lock();
        if held
            .get(&trajectory)
            .is_some_and(|revoke| !*revoke.borrow())
        {
            return None;
        }
        let (revoke, revoked) = watch::channel(false);
        held.insert(trajectory, revoke);
        Some(revoked)
    }

    fn revoke(&self, trajectory: u64) {
        if let Some(revoke) = self.lock().get(&trajectory) {
            revoke.send_replace(true);
        }
    }

    /// Ends this holding of it, unless it was followed by another.
    fn release(&self, trajectory: u64, holding: &Revoked) {
        let mut held = self.lock();
        if held
            .get(&trajectory)
            .is_some_and(|revoke| revoke.subscribe().same_channel(holding))
        {
            held.remove(&trajectory);
        }
    }

    fn count(&self) -> usize {
        self.lock().len()
    }

    fn all(&self) -> Vec<u64> {
        self.lock().keys().copied().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, watch::Sender<bool>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
