//! Hands on processes, here and on other nodes.
//!
//! ```text
//!  core ── Spawn, Kill, Strike, CollectEvidence ──► Hands ──┬─ Here ──► launcher
//!                                                           └─ Remote ► orders ══► node's daemon
//!  process and launch events ◄──────────────────────────────┴───────────────────────────┘
//! ```
//! Nothing is waited for: a process is started beside the loop (its log is on a disk, and the daemon is
//! forked for it), and what cannot be said to a node now is said when it joins again.
use super::nodes::Remote;
use super::{Driver, Events, ProcessEvent};
use crate::grouping::role_life;
use crate::launcher::{self, Afflictions, Launcher, Running};
use crate::store::{Store, StoredInstance};
use crate::telemetry::Telemetry;
use crate::worker::{Life, WorkerPlan};
use robust_proto::v1::{self, host_message};
use robust_shared::core::{Input, RoleEvent};
use robust_shared::fault::Fault;
use robust_shared::ids::{Incarnation, NodeId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// How long a process that is asked to end may take.
const RETIREMENT: Duration = Duration::from_secs(5);

/// A process of the job, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    /// Where it runs.
    pub node: NodeId,
    /// Its id there; none before its node said so.
    pub pid: Option<u32>,
}

/// What is to be started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpawnOrder {
    /// What begins.
    pub life: Life,
    /// The revision of the job file that it reads, for a node that has only the first.
    pub job: Option<Arc<str>>,
    /// What certifies it.
    pub identity: Option<String>,
}

/// How evidence is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Collect {
    /// What tools may take.
    pub limit: Duration,
    /// The process goes on afterwards: nothing may stop it.
    pub gently: bool,
}

/// What can be done to the processes of one node.
pub(super) trait Hands {
    /// Has a process started; an event tells its id, or why it is not.
    fn spawn(&mut self, order: SpawnOrder);
    /// SIGKILL to its whole group; one that is being started does not outlive that either.
    fn kill(&mut self, incarnation: Incarnation);
    /// Does an injected fault to it; an error says why that is known to have failed.
    fn strike(&mut self, incarnation: Incarnation, fault: &Fault) -> Result<(), String>;
    /// Has its stacks and states taken, as this says; an event brings them.
    fn collect(&mut self, incarnation: Incarnation, pid: u32, how: Collect);
}

/// Hands on this node's processes.
pub(super) struct Here {
    pub launcher: Launcher,
    pub afflictions: Afflictions,
    pub telemetry: Telemetry,
    pub worker: WorkerPlan,
    pub store: Store,
    pub events: Events,
    /// Processes that are being started, and whether they are to be killed as soon as they are.
    pub starting: HashMap<Incarnation, bool>,
}

impl Here {
    /// Goes on watching a process that an earlier daemon started; false when it is gone.
    pub fn adopt(&mut self, stored: &StoredInstance) -> bool {
        let StoredInstance {
            id,
            incarnation,
            pid,
            start_time,
            ..
        } = *stored;
        let log = self.worker.log_path(id);
        let running = Running { pid, start_time };
        let group = role_life(id, incarnation);
        let there = self
            .launcher
            .adopt(incarnation, running, Some(&log), Some(&group));
        if there {
            self.telemetry.watch(incarnation, pid);
        }
        there
    }

    /// A process is started.
    pub fn started(&mut self, life: &Life, running: Running) {
        if self.starting.remove(&life.incarnation) == Some(true) {
            self.launcher.kill(life.incarnation);
        }
        self.telemetry.watch(life.incarnation, running.pid);
        // Not waited for: a process that a later daemon does not know of is fenced when it links.
        drop(self.store.put_instance(StoredInstance {
            id: life.id,
            incarnation: life.incarnation,
            generation: life.generation,
            pid: running.pid,
            start_time: running.start_time,
        }));
    }

    /// It ended, or was never there.
    pub fn forget(&mut self, incarnation: Incarnation) {
        self.starting.remove(&incarnation);
        self.telemetry.unwatch(incarnation);
        self.afflictions.forget(incarnation);
        // Not waited for: adopting a process that is gone only finds that it is gone.
        drop(self.store.remove_instance(incarnation));
    }
}

impl Hands for Here {
    fn spawn(&mut self, order: SpawnOrder) {
        let SpawnOrder { life, identity, .. } = order;
        self.starting.insert(life.incarnation, false);
        let spec = self.worker.spec(&life, identity);
        let (launcher, events) = (self.launcher.clone(), self.events.clone());
        tokio::task::spawn_blocking(move || {
            let started = launcher.spawn(spec).map_err(|e| e.to_string());
            let life = Box::new(life);
            // When the driver is gone, it is fenced by the next one.
            let _ = events.send(ProcessEvent::Started { life, started }.into());
        });
    }

    fn kill(&mut self, incarnation: Incarnation) {
        self.launcher.kill(incarnation);
        if let Some(unwanted) = self.starting.get_mut(&incarnation) {
            *unwanted = true;
        }
    }

    fn strike(&mut self, incarnation: Incarnation, fault: &Fault) -> Result<(), String> {
        self.afflictions.strike(&self.launcher, incarnation, fault)
    }

    fn collect(&mut self, incarnation: Incarnation, pid: u32, how: Collect) {
        let events = self.events.clone();
        tokio::task::spawn_blocking(move || {
            let found = launcher::evidence(pid, how.limit, how.gently);
            // When the driver is gone nobody wants to know.
            let _ = events.send(ProcessEvent::Evidence { incarnation, found }.into());
        });
    }
}

impl Driver {
    pub(super) fn hands(&mut self, node: NodeId) -> &mut dyn Hands {
        match node {
            NodeId::LEADER => &mut self.here,
            other => {
                let remote: &mut Remote = self.nodes.remote(other);
                remote
            }
        }
    }

    pub(super) fn spawn(&mut self, order: SpawnOrder, node: NodeId) {
        let Life {
            id, incarnation, ..
        } = order.life;
        self.taped.born(self.parts.clock.now(), id, incarnation);
        let pid = None;
        self.processes.insert(incarnation, Process { node, pid });
        self.hands(node).spawn(order);
    }

    /// A process of this node is started, or is not.
    pub(super) fn on_started(&mut self, life: &Life, started: Result<Running, String>) {
        let incarnation = life.incarnation;
        if !self.processes.contains_key(&incarnation) {
            // Its end was heard of before its start.
            return;
        }
        match started {
            Ok(running) => {
                self.here.started(life, running);
                self.on_spawned(NodeId::LEADER, incarnation, running.pid);
            }
            Err(reason) => {
                self.forget(incarnation);
                self.inputs
                    .push_back(Input::Role(incarnation, RoleEvent::SpawnFailed { reason }));
            }
        }
    }

    /// Kills it where it runs, if it runs.
    pub(super) fn kill(&mut self, incarnation: Incarnation) {
        if let Some(process) = self.processes.get(&incarnation).copied() {
            self.hands(process.node).kill(incarnation);
        }
    }

    /// Asks a process to end gently; it is killed when it does not.
    pub(super) fn retire(&mut self, incarnation: Incarnation) {
        self.abandon_gang_of(incarnation);
        let gently = host_message::Body::Shutdown(v1::Shutdown {});
        if !self.links.send(incarnation, gently) {
            return self.kill(incarnation);
        }
        let events = self.parts.events.clone();
        let patience = self.time_to_end(RETIREMENT);
        tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            // When the driver is gone nobody wants to know.
            let _ = events.send(ProcessEvent::Overstayed { incarnation }.into());
        });
    }

    /// Kills what a node still runs of a life that is over; the driver need not know it.
    pub(super) fn fence(&mut self, node: NodeId, incarnation: Incarnation) {
        tracing::warn!("{incarnation} is over and still runs on {node}: killing it");
        self.hands(node).kill(incarnation);
    }

    pub(super) fn collect_evidence(&mut self, incarnation: Incarnation, gently: bool) {
        // What a tool wrote until it is cut off is to arrive before the core waits no longer.
        let limit = self.core.config().evidence_timeout * 4 / 5;
        if let Some(&Process {
            node,
            pid: Some(pid),
        }) = self.processes.get(&incarnation)
        {
            let how = Collect { limit, gently };
            self.hands(node).collect(incarnation, pid, how);
        }
    }

    /// A process that is no more, or is given up.
    pub(super) fn forget(&mut self, incarnation: Incarnation) {
        if let Some(process) = self.processes.remove(&incarnation) {
            match process.node {
                NodeId::LEADER => self.here.forget(incarnation),
                node => self.nodes.remote(node).forget(incarnation),
            }
        }
        self.link_samples.remove(&incarnation);
        self.gauges.forget(incarnation);
        self.pulls.forget(incarnation);
        self.taped.gone(self.parts.clock.now(), incarnation);
        self.links.forget(incarnation);
        self.served.forget(incarnation);
        self.abandon_gang_of(incarnation);
        self.switches.remove(&incarnation);
        self.inspecting.forget(incarnation);
        self.parts.leases.revoke_all(incarnation);
    }
}
