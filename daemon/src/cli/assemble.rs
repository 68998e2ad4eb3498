//! The parts of a leader's driver, made and started.
use super::checks::Prepared;
use super::failure::Failure;
use crate::ckpt::{self, ByNodes, Checkpointer, RemoteConfig, Uploader};
use crate::control::Far;
use crate::driver::{Clock, Event, Events, Feeds, Parts, World};
use crate::grouping::Grouping;
use crate::grouplog::Logging;
use crate::launcher::Launcher;
use crate::leases::Leases;
use crate::nodes::{Authorities, Members, Puts, Shards};
use crate::state::StateDir;
use crate::store::{Quota, Store};
use crate::telemetry::Telemetry;
use crate::worker::WorkerPlan;
use robust_ckpt::Retention;
use robust_shared::job::{PublishAfter, SlotDevices, WrittenBy};
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Which devices the slots of this node are.
fn devices(prepared: &Prepared) -> Result<SlotDevices, Failure> {
    let job = &prepared.job;
    let Some(node) = job.nodes.first() else {
        return Ok(SlotDevices::default());
    };
    if !job.takes_devices_of(&node.name, &node.pools) {
        return Ok(SlotDevices::default());
    }
    let seen = prepared.sampled.seen_devices();
    let devices = job.slot_devices(&node.name, &node.pools, &seen)?;
    if let Some(why) = &devices.unassigned {
        tracing::warn!("{why}");
    }
    Ok(devices)
}

/// What the driver decides with, and what it waits for.
pub(super) fn assemble(
    (prepared, grouping): (&Prepared, Grouping),
    (state, authorities, run): (&StateDir, &Authorities, String),
    (store, quota, logging): (&Store, Quota, Logging),
    (clock, fence): (Clock, Box<dyn Fn() + Send + Sync>),
    feeds: Feeds,
    (events, heard): (Events, UnboundedReceiver<Event>),
    (leases, members): (Leases, Option<Members>),
) -> Result<(Parts, World), Failure> {
    let job = Arc::new(prepared.job.clone());
    let start = |what| move |source| Failure::Start { what, source };
    let (exits, launches) = unbounded_channel();
    let (sampled, samples) = unbounded_channel();
    let (written, checkpoints) = unbounded_channel();
    let sources = prepared
        .sampled
        .start(state)
        .map_err(start("the telemetry"))?;
    // A step that waits for its checkpoint is committed after that: until then the one before is what
    // the job goes back to.
    let least = match job.checkpoint.publish_after {
        PublishAfter::Disk => 2,
        _ => 1,
    };
    let keep = Retention {
        last: (job.checkpoint.keep as usize).max(least),
        every: job.checkpoint.keep_every,
        best: job.checkpoint.keep_best as usize,
    };
    let far = prepared.remote.clone();
    let far = far.map(|remote| Arc::new(Far::new(remote, run.clone(), state.checkpoints())));
    let remote = prepared.remote.clone().map(|remote| RemoteConfig {
        remote,
        run,
        dir: state.checkpoints(),
        every: job.checkpoint.remote_every,
        keep: keep.clone(),
    });
    let (remote, by_nodes) = match job.checkpoint.written_by {
        WrittenBy::Leader => (remote, None),
        WrittenBy::Nodes => (
            None,
            remote.map(|remote| ByNodes::new(remote, store.clone())),
        ),
    };
    if let Some(by_nodes) = by_nodes.clone() {
        tokio::spawn(by_nodes.look());
    }
    let uploader = remote
        .map(|config| Uploader::start(config, written.clone()))
        .transpose()
        .map_err(start("the uploads"))?;
    let checkpoint_config = ckpt::Config {
        dir: state.checkpoints(),
        keep,
        disk: robust_ckpt::disk::real(),
    };
    let token = authorities.job_token();
    let plan = WorkerPlan::new(prepared.worker.clone(), state.clone(), &job, token);
    let plan = plan.certified_by(authorities.clone());
    let groups = grouping.groups().clone();
    let plan = plan.grouped(grouping);
    let plan = plan.with_devices(devices(prepared)?);
    // Programs of this machine ask in clear, which crosses no wire: they need no authority to know it by.
    let router = feeds.status().borrow().router.clone();
    let plan = plan.routed_at(router.replacen("https://", "http://", 1));
    plan.lay_engines_key()?;
    let parts = Parts {
        state: state.clone(),
        prompts: prepared.prompts.clone(),
        clock,
        store: store.clone(),
        fence,
        launcher: Launcher::with_groups(exits, groups).map_err(start("the launcher"))?,
        telemetry: Telemetry::start(job.detect.sample_interval(), sources, sampled)
            .map_err(start("the telemetry"))?,
        checkpointer: Checkpointer::start(checkpoint_config, store.clone(), written)
            .map_err(start("the checkpoint writer"))?,
        uploader,
        by_nodes,
        puts: Puts::default(),
        far,
        checkpoints: state.checkpoints(),
        leases,
        members,
        authorities: authorities.clone(),
        shards: Shards::new(state.snapshots(), state.checkpoints()),
        worker: match prepared.nodes {
            Some((_, reached)) => plan.bound_to(reached, &job),
            None => plan,
        },
        quota,
        logging,
        test_devices: prepared.sampled.test_devices(),
        feeds,
        events,
        job,
    };
    Ok((
        parts,
        World {
            events: heard,
            launches,
            samples,
            checkpoints,
            store: store.condition(),
        },
    ))
}
