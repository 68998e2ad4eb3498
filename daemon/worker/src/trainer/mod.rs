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

use std::time::Instant;

use robust_proto::v1::host_message::Body;
use robust_role::calls::Calls;
use robust_role::snapshot::Slots;
use robust_role::{Facts, FromHost, Link, LinkEnd, RoleArgs, Stages, network};
use robust_shared::core::RuleSet;
use robust_shared::footprint::Need;
use robust_shared::ids::Role;
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

/// Runs a rank until its link ends. `started` is when the process began, for the start's log line.
pub fn run(args: &RoleArgs, runtime: &Handle, started: Instant) -> Result<LinkEnd, StartError> {
    let mut stages = Stages::since(started);
    let folder = args.model_folder()?;
    let config = Qwen3Config::read(&folder.join(CONFIG_FILE))?;
    let slots = Slots::new(&args.snapshot_dir, args.index, args.job.trainer.ranks);
    let shape = memory::shape(&config);
    let there = match memory::holds(&args.snapshot_dir) {
        true => slots.bytes(),
        // Snapshots on a disk take none.
        false => u64::MAX,
    };
    let need = Need::of_trainer(&shape, &args.job, there);
    memory::check("a rank of the trainer", need)?;
    let layout = layout_of(&config);
    stages.end("process");
    // The daemon can send the restore as soon as it knows where this rank's gradients are: that
    // needs the transport, but not the model, which is made meanwhile.
    let (attached, state) = std::thread::scope(|scope| {
        let attaching = scope.spawn(|| attach(args, runtime, &layout));
        let state = TrainState::new(config.clone(), args);
        (
            attaching
                .join()
                .unwrap_or(Err(StartError::thread("transport"))),
            state,
        )
    });
    let (mut attached, mut state) = (attached?, state?);
    stages.end("transport, attach and model");
    state.warm_kernels();
    stages.end("kernels");
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
        // One rank's are enough, and only an engine of somebody else's has to prove anything.
        makes_canaries: args.index == 0 && args.job.rollout.command.is_some(),
    };
    let mut rank = Rank { calls, work };
    attached.link.phase(Phase::AwaitBatch, 0);
    Ok(serve(&mut rank, &mut attached.inbox))
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
