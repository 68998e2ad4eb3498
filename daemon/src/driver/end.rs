//! Ending in order: roles first gently, then by force; the last step goes to disk meanwhile.
use super::adopt::batch_of;
use super::hands::Process;
use super::world::World;
use super::{Driver, Event, ProcessEvent};
use crate::ckpt::{ByNodes, CkptEvent};
use crate::launcher::{LaunchEvent, Running, kill_and_wait};
use crate::nodes::NodeLinkEvent;
use crate::store::Store;
use robust_proto::v1::{self, host_message::Body, leader_message};
use robust_shared::ids::{Generation, Incarnation, NodeId, Step};
use robust_shared::service;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout_at};

/// How long roles may take to end by themselves.
const GENTLE: Duration = Duration::from_secs(2);
/// How long the kernel may take to end a killed process.
const FORCED: Duration = Duration::from_secs(5);
/// How long the last checkpoint may take.
const LAST_CHECKPOINT: Duration = Duration::from_secs(60);

/// Bytes a second that come from other nodes for it at least.
const SLOWEST: u64 = 50_000_000;

/// How long the object store may take nothing before the last upload is given up.
const LAST_UPLOAD: Duration = Duration::from_secs(20);

/// What was left when the daemon ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Processes that did not even end when killed (uninterruptible in the kernel).
    pub unkilled: Vec<u32>,
    /// Whether the last committed step is on disk, so that snapshots in memory are not needed.
    pub on_disk: bool,
}

impl Driver {
    /// Ends every role process and has the last committed step written to disk, so that a job that
    /// was stopped can go on from there. With `hurry` roles get no time to end by themselves; the
    /// rest of the order stays.
    pub async fn end(&mut self, world: &mut World, hurry: impl Future<Output = ()>) -> End {
        self.gang = None;
        self.parts.launcher.end_spares();
        // Dropping a waiting request answers it; agents are told by the end of their links.
        self.routes.retain(|_, waiting| waiting.lease.is_some());
        self.services
            .handle(self.parts.clock.now(), service::Event::End);
        let last = self.offer_last_checkpoint();
        self.links.send_to_all(&Body::Shutdown(v1::Shutdown {}));
        let gentle = self.time_to_end(GENTLE);
        tokio::select! {
            () = self.wait_for_exits(world, gentle) => {}
            () = hurry => tracing::info!("{} roles are killed at once", self.processes.len()),
        }
        let left: Vec<Incarnation> = self.processes.keys().copied().collect();
        for incarnation in left {
            self.kill(incarnation);
        }
        self.wait_for_exits(world, FORCED).await;
        if let Some(step) = last {
            self.wait_for_checkpoint(world, step).await;
        }
        self.upload_last(world).await;
        self.turn_page(true);
        // What the store was given last becomes durable; a failure was said when it happened.
        let _ = self.parts.store.sync().await;
        self.printer.end().await;
        let launcher = self.parts.launcher.clone();
        // A panic in it was said.
        let _ = tokio::task::spawn_blocking(move || launcher.forget_groups()).await;
        let here = |p: &&Process| p.node == NodeId::LEADER;
        End {
            unkilled: self
                .processes
                .values()
                .filter(here)
                .filter_map(|p| p.pid)
                .collect(),
            on_disk: self.last_step_is_on_disk(),
        }
    }

    /// Ends the services, after the roles that needed them; those that do not even end when they are
    /// killed are returned.
    pub async fn end_services(&mut self, hurry: impl Future<Output = ()>) -> Vec<u32> {
        self.services.end(hurry).await
    }

    /// Tells the other nodes that it is over, or that this daemon will be back, and waits until
    /// they heard it.
    pub async fn dismiss_nodes(&mut self, world: &mut World, over: bool) {
        let ended = v1::JobEnded { over };
        self.nodes.tell_all(&leader_message::Body::Ended(ended));
        if !over {
            // They stay, and their streams end with this process.
            return;
        }
        let deadline = Instant::now() + GENTLE;
        while self.nodes.any_linked() {
            match timeout_at(deadline, world.events.recv()).await {
                Ok(Some(Event::Node(NodeLinkEvent::Gone { link }))) => self.on_node_gone(link),
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// How long roles may take to end: at least as long as programs of the user's are given.
    pub(super) fn time_to_end(&self, least: Duration) -> Duration {
        let engine = self.parts.job.rollout.command.as_ref().map(|c| c.stop);
        let trainer = self.parts.job.trainer.command.as_ref().map(|c| c.stop);
        let agent = self.parts.job.agent.command.as_ref().map(|c| c.stop);
        let graces = [engine, trainer, agent].into_iter().flatten();
        least + graces.map(|stop| stop.grace()).max().unwrap_or_default()
    }

    /// Keeps what must be remembered of the end itself. A node that is away is not waited for: its
    /// roles end when it joins again, or of themselves.
    async fn wait_for_exits(&mut self, world: &mut World, patience: Duration) {
        let deadline = Instant::now() + patience;
        while self.processes.values().any(|p| self.is_in_reach(p.node)) {
            let event = async {
                tokio::select! {
                    Some(LaunchEvent::Exited { incarnation, .. }) = world.launches.recv() => {
                        Some(Ended::Process(incarnation))
                    }
                    Some(event) = world.events.recv() => Some(Ended::Else(event)),
                    else => None,
                }
            };
            match timeout_at(deadline, event).await {
                Ok(Some(Ended::Process(incarnation))) => self.forget(incarnation),
                Ok(Some(Ended::Else(event))) => self.on_event_at_end(event),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// What still matters of what is heard.
    fn on_event_at_end(&mut self, event: Event) {
        match event {
            Event::Node(NodeLinkEvent::Said { link, body }) => self.on_node_said(link, *body),
            Event::Node(NodeLinkEvent::Gone { link }) => self.on_node_gone(link),
            Event::Process(ProcessEvent::Started { life, started }) => {
                self.on_started(&life, started);
            }
            _ => {}
        }
    }

    /// The initial weights always are: they are the model folder.
    fn last_step_is_on_disk(&self) -> bool {
        let step = self.core.view(self.parts.clock.now()).step;
        // A gang that was rolled back may have written another one.
        let of = self.snapshots.get(step).map(|s| s.generation);
        let is = |(s, g): (Step, Generation)| s == step && of.is_none_or(|of| of == g);
        step.0 == 0 || self.written.is_some_and(is)
    }

    fn offer_last_checkpoint(&mut self) -> Option<Step> {
        let view = self.core.view(self.parts.clock.now());
        let (step, reward) = (view.step, Some(view.reward));
        let generation = self.snapshots.get(step)?.generation;
        if self.last_step_is_on_disk() {
            return None;
        }
        let consumed = match &self.consumed {
            Some((of, batch)) if *of == step => batch.clone(),
            _ => batch_of(&self.parts.job, step.0),
        };
        self.offer_checkpoint(step, generation, consumed, reward);
        Some(step)
    }

    async fn wait_for_checkpoint(&mut self, world: &mut World, step: Step) {
        let deadline = Instant::now() + self.time_for_last(step);
        loop {
            let event = tokio::select! {
                event = world.checkpoints.recv() => event,
                // Nodes say what became of what they put.
                Some(event) = world.events.recv() => {
                    self.on_event_at_end(event);
                    continue;
                }
                () = sleep_until(deadline) => break,
            };
            let Some(event) = event else { break };
            self.on_checkpoint(&event);
            match self.ended_with(&event) {
                Some(of) if of == step => return,
                // The writer was busy with an earlier step when this one was offered.
                Some(_) => drop(self.offer_last_checkpoint()),
                None => {}
            }
        }
        tracing::warn!("the checkpoint of step {step} was not written in time");
    }

    /// How long the last checkpoint may take.
    fn time_for_last(&self, step: Step) -> Duration {
        let shards = || self.snapshots.get(step).into_iter().flat_map(|s| &s.shards);
        if self.parts.by_nodes.is_some() {
            let largest = shards().map(|shard| shard.bytes).max();
            return ByNodes::patience(largest.unwrap_or_default(), self.most_hands(step));
        }
        // Shards of ranks on other machines have to come here first.
        let elsewhere = shards().filter(|shard| shard.path.is_empty());
        let bytes: u64 = elsewhere.map(|shard| shard.bytes).sum();
        LAST_CHECKPOINT + Duration::from_secs(bytes / SLOWEST)
    }

    /// The step of which nothing more is done for its checkpoint.
    fn ended_with(&self, event: &CkptEvent) -> Option<Step> {
        match event {
            CkptEvent::Written { step, .. }
            | CkptEvent::Failed { step, .. }
            | CkptEvent::Paused { step, .. }
            | CkptEvent::Put { step, .. } => Some(*step),
            CkptEvent::NotUploaded { step, .. } if self.parts.by_nodes.is_some() => Some(*step),
            CkptEvent::Uploaded { .. }
            | CkptEvent::NotUploaded { .. }
            | CkptEvent::Resumed { .. }
            | CkptEvent::Untidy(_) => None,
        }
    }

    /// Has the last checkpoint put into the object store, and waits for as long as bytes move.
    async fn upload_last(&mut self, world: &mut World) {
        let (Some(uploader), Some((step, _))) = (self.parts.uploader.clone(), self.written) else {
            return;
        };
        let (mut sent, mut offered) = (0, false);
        loop {
            let standing = uploader.standing();
            if standing.is_idle() {
                if standing.step == Some(step) || std::mem::replace(&mut offered, true) {
                    return;
                }
                tracing::info!(
                    "putting the checkpoint of step {step} into {}",
                    uploader.url()
                );
                uploader.offer_now(step);
            }
            match timeout_at(Instant::now() + LAST_UPLOAD, world.checkpoints.recv()).await {
                Ok(Some(event)) => self.on_checkpoint(&event),
                Ok(None) => return,
                Err(_) if uploader.standing().sent_bytes > sent => {}
                Err(_) => {
                    let url = uploader.url();
                    return tracing::warn!("{url} takes nothing: step {step} is not put there");
                }
            }
            sent = uploader.standing().sent_bytes;
        }
    }
}

/// What matters while roles end.
enum Ended {
    Process(Incarnation),
    Else(Event),
}

/// Kills the role processes of a job that is being discarded; those that do not end are returned.
pub async fn kill_leftovers(store: &Store) -> std::io::Result<Vec<u32>> {
    let stored = store.instances().unwrap_or_default();
    let known = stored.into_iter().map(|i| {
        let (pid, start_time) = (i.pid, i.start_time);
        (i.incarnation, Running { pid, start_time })
    });
    kill_and_wait(known.collect()).await
}
