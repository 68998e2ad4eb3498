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
mod tools;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use robust_proto::v1::host_message::Body;
use robust_proto::v1::{Dispatch, Hello};
use robust_role::turns::{Leases, Rollouts, Sampling, Turns};
use robust_role::{FromHost, Link, LinkEnd, RoleArgs, Stages};
use robust_shared::ids::Role;
use robust_shared::phase::Phase;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use crate::StartError;
use crate::memory;
use crate::model::config::Qwen3Config;
use crate::model::hf::CONFIG_FILE;
use crate::model::tokenizer::Tokenizer;
use crate::tool::Calculator;

use conversation::Conversation;
use tools::{Tools, Trouble};

/// What all conversations of a worker share.
struct Worker {
    turns: Turns,
    link: Link,
    tokenizer: Tokenizer,
    tool: Calculator,
    max_turns: u32,
    sampling: Sampling,
    slots: Semaphore,
    /// Held while the number of conversations is counted and told.
    reporting: Mutex<()>,
    leases: Leases,
    rollouts: Rollouts,
    tools: Tools,
}

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
    let (leases, rollouts) = (Leases::default(), Rollouts::default());
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
    let max_len = memory::shape(&config).context(job) as usize;
    Ok(Worker {
        turns: Turns::new(args, link.clone(), rollouts.clone(), max_len)?,
        link,
        tokenizer: Tokenizer::of_data(job, model)?,
        tool,
        max_turns: job.agent.max_turns,
        sampling: Sampling {
            max_new_tokens: job.rollout.max_new_tokens as usize,
            temperature: job.rollout.temperature,
        },
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
                worker.link.returned(trajectory, reason, false);
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
