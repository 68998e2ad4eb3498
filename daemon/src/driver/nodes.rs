//! The job's other nodes, as the driver knows them.
//!
//! ```text
//!  away ── NodeJoined: what ended there is told, what waits is ordered again ──► linked
//!    ▲                                                                             │
//!    └──── its stream ended, it left, or the core gave it up (it joins anew) ──────┘
//! ```
//! Whether a node is lost is the core's to decide; a broken stream alone decides nothing.
use super::hands::{Hands, Process, SpawnOrder};
use super::happening::NodeRefused;
use super::{Driver, LinkId};
use crate::launcher::Signal;
use crate::nodes::{Joined, Orders};
use crate::telemetry::Usage;
use robust_proto::v1::leader_message::Body as Down;
use robust_proto::v1::node_message::Body as Up;
use robust_proto::v1::{self, role_exited};
use robust_shared::core::{Exit, Input, Labels, NodeSpec};
use robust_shared::hardware::Finding;
use robust_shared::ids::{Incarnation, NodeId};
use robust_shared::time::Time;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::sync::oneshot;

/// Hands on another node's processes.
#[derive(Debug, Default)]
pub(super) struct Remote {
    /// Random, of its state directory.
    identity: String,
    /// Where its roles are reached.
    pub address: String,
    /// When it was last heard.
    pub beat: Option<Time>,
    link: Option<(LinkId, Orders)>,
    /// Ordered, and no word of them yet: ordered again when it joins again.
    pending: BTreeMap<Incarnation, SpawnOrder>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    remotes: HashMap<NodeId, Remote>,
}

impl Nodes {
    /// A node, known from now on.
    pub fn remote(&mut self, node: NodeId) -> &mut Remote {
        self.remotes.entry(node).or_default()
    }

    /// A node that is known.
    pub fn get(&self, node: NodeId) -> Option<&Remote> {
        self.remotes.get(&node)
    }

    /// Whose link this is now.
    fn by_link(&self, link: LinkId) -> Option<NodeId> {
        let has = |(_, r): &(&NodeId, &Remote)| r.link.as_ref().is_some_and(|(id, _)| *id == link);
        self.remotes.iter().find(has).map(|(node, _)| *node)
    }

    /// Tells every linked node.
    pub fn tell_all(&self, body: &Down) {
        for remote in self.remotes.values() {
            remote.order(body.clone());
        }
    }

    /// Whether any node is linked.
    pub fn any_linked(&self) -> bool {
        self.remotes.values().any(|r| r.link.is_some())
    }
}

impl Remote {
    /// Whether its stream is open.
    pub fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// A process there is no more.
    pub fn forget(&mut self, incarnation: Incarnation) {
        self.pending.remove(&incarnation);
    }

    fn order(&self, body: Down) {
        if let Some((_, orders)) = &self.link {
            // A stream that just broke is reported by itself.
            let _ = orders.send(v1::LeaderMessage { body: Some(body) });
        }
    }
}

fn spawn_order(order: &SpawnOrder) -> Down {
    Down::Spawn(v1::SpawnRole {
        role: order.id.role.name().to_owned(),
        index: order.id.index,
        incarnation: order.incarnation.0,
        generation: order.generation.0,
    })
}

impl Hands for Remote {
    fn spawn(&mut self, order: SpawnOrder) -> Result<Option<u32>, String> {
        self.pending.insert(order.incarnation, order);
        self.order(spawn_order(&order));
        Ok(None)
    }

    /// Unsaid while the node is away: when it joins again, what is over there is fenced.
    fn kill(&mut self, incarnation: Incarnation) {
        self.pending.remove(&incarnation);
        self.order(Down::Kill(v1::KillRole {
            incarnation: incarnation.0,
        }));
    }

    fn signal(&mut self, incarnation: Incarnation, signal: Signal) -> bool {
        self.order(Down::Signal(v1::SignalRole {
            incarnation: incarnation.0,
            signal: signal.as_raw(),
        }));
        self.is_linked()
    }

    fn collect(&mut self, incarnation: Incarnation, _pid: u32, limit: Duration) {
        self.order(Down::Collect(v1::CollectEvidence {
            incarnation: incarnation.0,
            limit_ms: u32::try_from(limit.as_millis()).unwrap_or(u32::MAX),
        }));
    }
}

fn exit(ended: &v1::RoleExited) -> Exit {
    match ended.exit {
        Some(role_exited::Exit::Code(code)) => Exit::Code(code),
        Some(role_exited::Exit::Signal(signal)) => Exit::Signal(signal),
        None => Exit::Gone,
    }
}

impl Driver {
    pub(super) fn on_node_joined(
        &mut self,
        joined: Joined,
        admitted: oneshot::Sender<Result<(), NodeRefused>>,
    ) {
        let spec = match self.spec_of(&joined) {
            Ok(spec) => spec,
            Err(refused) => return drop(admitted.send(Err(refused))),
        };
        // What waits comes first: the node's table and its processes as they are now.
        self.take_inputs();
        let known = self.core.node_id(&spec.name);
        let running: Vec<Incarnation> = joined
            .proof
            .running
            .iter()
            .copied()
            .map(Incarnation)
            .collect();
        if let Some(node) = known {
            self.account_for_processes(node, &joined.proof.ended, &running);
        }
        let waiting = known.and_then(|node| self.nodes.get(node));
        let pending = waiting.map(|r| r.pending.clone()).unwrap_or_default();
        let there = running.iter().chain(pending.keys()).copied().collect();
        let input = Input::NodeJoined {
            node: spec.clone(),
            running: there,
        };
        self.core.handle(self.parts.clock.now(), input);
        // Makes the loop fetch what the core wants now.
        self.inputs.push_back(Input::Timeout);
        let Some(node) = self.core.node_id(&spec.name) else {
            return drop(admitted.send(Err(NodeRefused::Ending)));
        };
        tracing::info!("node {} joined from {}", joined.name, joined.from);
        let remote = self.nodes.remote(node);
        remote.identity = joined.proof.identity;
        remote.address = joined.proof.advertise;
        remote.beat = Some(self.parts.clock.now());
        remote.link = Some((joined.link, joined.orders));
        for order in pending.values() {
            remote.order(spawn_order(order));
        }
        if admitted.send(Ok(())).is_err() {
            remote.link = None;
        }
    }

    /// What the node has, if it may join.
    fn spec_of(&self, joined: &Joined) -> Result<NodeSpec, NodeRefused> {
        let (name, proof) = (joined.name.clone(), &joined.proof);
        let known = self.core.node_id(&name);
        if known == Some(NodeId::LEADER) {
            return Err(NodeRefused::Leader { name });
        }
        let other = known.and_then(|node| self.nodes.get(node));
        if other.is_some_and(|r| r.is_linked() && r.identity != proof.identity) {
            return Err(NodeRefused::Taken { name });
        }
        let of_job = known.and_then(|node| self.core.node(node));
        let pools: BTreeMap<String, u32> = match proof.pools.is_empty() {
            true => of_job.map(|n| n.pools.clone()).unwrap_or_default(),
            false => proof.pools.clone().into_iter().collect(),
        };
        if pools.is_empty() {
            return Err(NodeRefused::NoPools { name });
        }
        let said = Labels {
            dc: proof.dc.clone(),
            rack: proof.rack.clone(),
            accel: proof.accel.clone(),
        };
        let labels = match said.is_empty() {
            true => of_job.map(|n| n.labels.clone()).unwrap_or_default(),
            false => said,
        };
        Ok(NodeSpec {
            name,
            labels,
            pools,
        })
    }

    /// What ended there while nobody heard it, and what is simply not there any more.
    fn account_for_processes(
        &mut self,
        node: NodeId,
        ended: &[v1::RoleExited],
        running: &[Incarnation],
    ) {
        for ended in ended {
            self.on_remote_exit(node, ended);
        }
        let pending = &self.nodes.remote(node).pending;
        let gone: Vec<Incarnation> = self
            .processes
            .iter()
            .filter(|(i, p)| p.node == node && !running.contains(i) && !pending.contains_key(i))
            .map(|(incarnation, _)| *incarnation)
            .collect();
        let now = self.parts.clock.now();
        for incarnation in gone {
            let detail = "gone while its node was away".to_owned();
            self.on_exited(incarnation, now, Exit::Gone, detail);
        }
        self.take_inputs();
    }

    fn on_remote_exit(&mut self, node: NodeId, ended: &v1::RoleExited) {
        let incarnation = Incarnation(ended.incarnation);
        if self.runs_on(incarnation, node) {
            let (now, detail) = (self.parts.clock.now(), ended.tail_of_log.clone());
            self.on_exited(incarnation, now, exit(ended), detail);
        }
    }

    fn runs_on(&self, incarnation: Incarnation, node: NodeId) -> bool {
        self.processes
            .get(&incarnation)
            .is_some_and(|p| p.node == node)
    }

    pub(super) fn on_node_said(&mut self, link: LinkId, body: Up) {
        let Some(node) = self.nodes.by_link(link) else {
            return;
        };
        self.nodes.remote(node).beat = Some(self.parts.clock.now());
        match body {
            Up::Beat(_) => self.on_beat(node),
            Up::Spawned(said) => self.on_spawned(node, Incarnation(said.incarnation), said.pid),
            Up::NotSpawned(said) => {
                let incarnation = Incarnation(said.incarnation);
                if self.runs_on(incarnation, node) {
                    self.forget(incarnation);
                    let reason = said.reason;
                    self.inputs.push_back(Input::SpawnFailed {
                        incarnation,
                        reason,
                    });
                }
            }
            Up::Exited(ended) => self.on_remote_exit(node, &ended),
            Up::Evidence(said) => {
                let (incarnation, text) = (Incarnation(said.incarnation), said.text);
                if self.runs_on(incarnation, node) {
                    self.inputs.push_back(Input::Evidence { incarnation, text });
                }
            }
            Up::Samples(samples) => self.on_node_samples(node, &samples),
            Up::Leave(leave) => self.on_node_left(node, leave.reason),
            // The service lets no second handshake pass.
            Up::Hello(_) | Up::Proof(_) => {}
        }
    }

    /// Whether what is ordered there is heard.
    pub(super) fn is_in_reach(&self, node: NodeId) -> bool {
        node == NodeId::LEADER || self.nodes.get(node).is_some_and(Remote::is_linked)
    }

    fn on_beat(&mut self, node: NodeId) {
        self.inputs.push_back(Input::NodeBeat { node });
    }

    /// Its process is known. A role may link before its node says so.
    pub(super) fn on_spawned(&mut self, node: NodeId, incarnation: Incarnation, pid: u32) {
        let Some(process) = self.processes.get_mut(&incarnation) else {
            return;
        };
        if process.node == node && process.pid.is_none() {
            process.pid = Some(pid);
            self.nodes.remote(node).forget(incarnation);
            self.inputs.push_back(Input::Spawned { incarnation, pid });
        }
    }

    fn on_node_samples(&mut self, node: NodeId, samples: &v1::NodeSamples) {
        for role in &samples.roles {
            let incarnation = Incarnation(role.incarnation);
            if self.runs_on(incarnation, node) {
                let usage = Usage {
                    busy: Duration::from_micros(role.busy_us),
                    rss_bytes: role.rss_bytes,
                    stopped: false,
                    disk_read_bytes: role.disk_read_bytes,
                    disk_write_bytes: role.disk_write_bytes,
                    accelerator: role.accelerator_us.map(Duration::from_micros),
                };
                self.on_usage(incarnation, &usage);
            }
        }
        let Some(name) = self.core.node(node).map(|n| n.name.clone()) else {
            return;
        };
        for report in &samples.devices {
            match serde_json::from_str::<Finding>(&report.finding) {
                Ok(finding) => self.inputs.push_back(Input::Hardware {
                    node: name.clone(),
                    device: report.device,
                    finding,
                }),
                Err(error) => tracing::warn!("node {name} says nonsense of a device: {error}"),
            }
        }
    }

    fn on_node_left(&mut self, node: NodeId, reason: String) {
        self.inputs.push_back(Input::NodeLeft { node, reason });
        self.nodes.remote(node).link = None;
        self.give_up_processes(node);
    }

    pub(super) fn on_node_gone(&mut self, link: LinkId) {
        if let Some(node) = self.nodes.by_link(link) {
            tracing::warn!("the stream of {node} ended");
            self.nodes.remote(node).link = None;
        }
    }

    /// Processes there that the core gave up are none of ours any more: should they live on, what
    /// they say is fenced, and they are killed when their node joins again.
    pub(super) fn give_up_processes(&mut self, node: NodeId) {
        let over: Vec<Incarnation> = self
            .processes
            .iter()
            .filter(|(i, p)| p.node == node && self.core.is_current(**i).is_none())
            .map(|(incarnation, _)| *incarnation)
            .collect();
        for incarnation in over {
            self.forget(incarnation);
        }
    }

    /// After a restart: the processes of other nodes, as far as the core knows them. Their nodes
    /// will say which of them live.
    pub(super) fn expect_remote_processes(&mut self) {
        let view = self.core.view(self.parts.clock.now());
        for instance in &view.instances {
            let elsewhere = instance.slot.as_ref().map(|s| s.node);
            if let Some(node) = elsewhere.filter(|node| *node != NodeId::LEADER)
                && instance.incarnation.0 != 0
            {
                let pid = Some(instance.pid).filter(|pid| *pid != 0);
                self.processes
                    .insert(instance.incarnation, Process { node, pid });
            }
        }
    }

    /// Lets the core decide on what waits.
    pub(super) fn take_inputs(&mut self) {
        let now = self.parts.clock.now();
        while let Some(input) = self.inputs.pop_front() {
            self.core.handle(now, input);
        }
    }
}
