//! A rank of the training gang.
//!
//! ```text
//!  Restore ──► OldLogprobs ──► Update ──► Snapshot ──► Publish ──┐
//!                  ▲             │ ▲                             │
//!                  │   gradients ▼ │ of the other ranks          │
//!                  └─────────────────────────────────────────────┘
//! ```
//!
//! Data parallel: every rank holds all weights, takes its share of the batch, and sums all ranks'
//! gradients in rank order, so all stay identical to the bit. A call is done once: its answer is
//! kept under the call's key, and a repeated call (the daemon restarted) is answered from memory.
//! Calls of another generation are refused (I-1).

mod calls;
mod canary;
mod exchange;
mod regions;
mod restore;
mod state;

use std::path::Path;
use std::time::Instant;

use robust_proto::v1::host_message::Body;
use robust_role::calls::Calls;
use robust_role::snapshot::Slots;
use robust_role::{Facts, FromHost, Link, LinkEnd, RoleArgs, Stages, network};
use robust_shared::core::RuleSet;
use robust_shared::footprint::Need;
use robust_shared::ids::Role;
use robust_shared::job::Job;
use robust_shared::phase::Phase;
use robust_transport::Transport;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::StartError;
use crate::memory;
use crate::model::config::Qwen3Config;
use crate::model::flat::{TensorSpec, layout_of};
use crate::model::hf::CONFIG_FILE;

use calls::{Rank, Work};
use exchange::Exchange;
use regions::Regions;
use state::TrainState;

/// What a spare of a rank has done before it is one: all that is the same for every rank and every life.
pub struct Prepared {
    /// The job that it was made for.
    job: Job,
    config: Qwen3Config,
    state: TrainState,
}

impl Prepared {
    /// For a rank of this job, on a machine that has the memory for one more.
    pub fn new(job: Job, snapshot_dir: &Path) -> Result<Self, StartError> {
        let folder = robust_role::model_folder(&job)?;
        // Those of the rank that it becomes are there by then.
        let slots = Slots::new(snapshot_dir, 0, job.trainer.ranks);
        let config = fitting("a spare of the trainer", &job, (snapshot_dir, &slots))?;
        let state = warm(config.clone(), &job, folder)?;
        Ok(Self { job, config, state })
    }
}

/// Runs a rank until its link ends. `started` is when the process began, for the start's log line.
pub fn run(args: &RoleArgs, runtime: &Handle, started: Instant) -> Result<LinkEnd, StartError> {
    run_with(args, runtime, started, None)
}

/// The same in a process that was a spare, with what that has done; `started` is when it became this rank.
pub fn run_with(
    args: &RoleArgs,
    runtime: &Handle,
    started: Instant,
    prepared: Option<Prepared>,
) -> Result<LinkEnd, StartError> {
    let mut stages = Stages::since(started);
    let folder = args.model_folder()?;
    let slots = Slots::new(&args.snapshot_dir, args.index, args.job.trainer.ranks);
    // Of another revision of the job nothing is taken.
    let prepared = prepared.filter(|of| of.job == args.job);
    let config = match &prepared {
        Some(prepared) => prepared.config.clone(),
        None => fitting(
            "a rank of the trainer",
            &args.job,
            (args.snapshot_dir.as_path(), &slots),
        )?,
    };
    let layout = layout_of(&config);
    stages.end("process");
    // The daemon can send the restore as soon as it knows where this rank's gradients are: that
    // needs the transport, but not the model, which is made meanwhile.
    let (attached, state) = std::thread::scope(|scope| {
        let attaching = scope.spawn(|| attach(args, runtime, &layout));
        let state = match prepared {
            Some(prepared) => Ok(prepared.state),
            None => warm(config.clone(), &args.job, folder),
        };
        (
            attaching
                .join()
                .unwrap_or(Err(StartError::thread("transport"))),
            state,
        )
    });
    let (mut attached, state) = (attached?, state?);
    stages.end("transport, attach, model and kernels");
    tracing::info!("start: {}", stages.line());
    let rules = RuleSet::from_job(&args.job.detect).unwrap_or_default();
    let patience = exchange::patience(rules.node_lost.window.get());
    let transport = attached.transport.clone();
    let exchange = Exchange::new(transport, args.generation, args.index, patience);
    let calls = Calls::of(args.generation);
    let work = Work {
        generation: args.generation,
        folder: folder.to_owned(),
        link: attached.link.clone(),
        facts: attached.facts,
        regions: attached.regions,
        exchange,
        slots,
        state,
        updated: None,
        // One rank's are enough, and only an engine of somebody else's has to prove anything.
        makes_canaries: args.index == 0 && args.job.rollout.command.is_some(),
    };
    let mut rank = Rank { calls, work };
    attached.link.phase(Phase::AwaitBatch, 0);
    Ok(serve(&mut rank, &mut attached.inbox))
}

/// The model's shape, of which a rank fits in here beside the snapshots that are there.
fn fitting(
    who: &'static str,
    job: &Job,
    (snapshot_dir, slots): (&Path, &Slots),
) -> Result<Qwen3Config, StartError> {
    let config = Qwen3Config::read(&robust_role::model_folder(job)?.join(CONFIG_FILE))?;
    let there = match memory::holds(snapshot_dir) {
        true => slots.bytes(),
        // Snapshots on a disk take none.
        false => u64::MAX,
    };
    let need = Need::of_trainer(&memory::shape(&config), job, there);
    memory::check(who, need)?;
    Ok(config)
}

/// What a rank trains with, its kernels chosen.
fn warm(config: Qwen3Config, job: &Job, folder: &Path) -> Result<TrainState, StartError> {
    let mut state = TrainState::new(config, job, folder)?;
    state.warm_kernels();
    Ok(state)
}

struct Attached {
    transport: Transport,
    regions: Regions,
    facts: Facts,
    link: Link,
    inbox: UnboundedReceiver<FromHost>,
}

fn attach(
    args: &RoleArgs,
    runtime: &Handle,
    layout: &[TensorSpec],
) -> Result<Attached, StartError> {
    let transport = Transport::start(args.transport()?)?;
    let regions = Regions::new(&transport, layout, args.index, &args.job)?;
    let facts = Facts::new(regions.hello(transport.addr()));
    let hello = facts.clone();
    let hands = network(transport.clone());
    let hello = move || hello.hello();
    let (link, inbox) = robust_role::start(runtime, args.link(Role::Trainer), hello, hands);
    link.counters().refused.told_by(transport.refused());
    link.phase(Phase::Init, 0);
    Ok(Attached {
        transport,
        regions,
        facts,
        link,
        inbox,
    })
}

fn serve(rank: &mut Rank, inbox: &mut UnboundedReceiver<FromHost>) -> LinkEnd {
    loop {
        match inbox.blocking_recv() {
            Some(FromHost::Message(epoch, message)) => match message.body {
                Some(Body::Call(call)) => rank.answer(epoch, call),
                other => tracing::warn!(?other, "not for a trainer"),
            },
            Some(FromHost::Ended(end)) => return end,
            None => return LinkEnd::Shutdown,
        }
    }
}
