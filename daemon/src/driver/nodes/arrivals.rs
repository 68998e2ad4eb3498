//! What nodes say, and what follows from it for the processes there.
use super::super::Driver;
use super::super::hands::Process;
use super::{Remote, spawn_order};
use crate::links::LinkId;
use crate::nodes::{Joined, NodeRefused};
use crate::telemetry::{DeviceUse, Usage};
use robust_proto::v1::node_message::Body as Up;
use robust_proto::v1::{self, host_message, role_exited};
use robust_shared::core::{
    Exit, Input, Labels, NodeEvent, NodeSpec, NodeState, ProcessState, RoleEvent, Seen,
};
use robust_shared::hardware::Finding;
use robust_shared::ids::{Incarnation, NodeId, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::oneshot;

fn exit(ended: &v1::RoleExited) -> Exit {
    match ended.exit {
        Some(role_exited::Exit::Code(code)) => Exit::Code(code),
        Some(role_exited::Exit::Signal(signal)) => Exit::Signal(signal),
        None => Exit::Gone,
    }
}

/// None where nothing is told of any device.
fn device_use(role: &v1::RoleUsage) -> Option<DeviceUse> {
    let device = DeviceUse {
        percent: role.gpu_percent,
        memory_bytes: role.gpu_memory_bytes,
        memory_total_bytes: role.gpu_memory_total_bytes,
        celsius: role.gpu_celsius,
    };
    (device != DeviceUse::default()).then_some(device)
}

fn gone(rollout: Incarnation) -> host_message::Body {
    let incarnation = rollout.0;
    host_message::Body::Gone(v1::RolloutGone { incarnation })
}

impl Driver {
    pub(in crate::driver) fn on_node_joined(
        &mut self,
        joined: Joined,
        admitted: oneshot::Sender<Result<(), NodeRefused>>,
    ) {
        let spec = match self.spec_of(&joined) {
            Ok(spec) => spec,
            Err(refused) => return drop(admitted.send(Err(refused))),
        };
        let known = self.core.node_id(&spec.name);
        if let Some(node) = known {
            // It is heard now: what it tells of must not find it lost in the same moment.
            self.inputs.push_front(Input::Node(node, NodeEvent::Beat));
        }
        // What waits comes first: the node's table and its processes as they are now.
        self.decide();
        let running: Vec<Incarnation> = joined
            .standing
            .running
            .iter()
            .copied()
            .map(Incarnation)
            .collect();
        if let Some(node) = known {
            self.account_for_processes(node, &joined.standing.ended, &running);
        }
        let waiting = known.and_then(|node| self.nodes.get(node));
        let pending = waiting.map(|r| r.pending.clone()).unwrap_or_default();
        let there = running.iter().chain(pending.keys()).copied().collect();
        let input = Input::NodeJoined {
            node: spec.clone(),
            running: there,
        };
        self.inputs.push_back(input);
        self.decide();
        let Some(node) = self.core.node_id(&spec.name) else {
            return drop(admitted.send(Err(NodeRefused::Ending)));
        };
        tracing::info!("node {} joined from {}", joined.name, joined.from);
        let remote = self.nodes.remote(node);
        remote.identity = joined.standing.identity;
        remote.address = joined.standing.advertise;
        remote.shards = joined.standing.shards;
        remote.renews = joined.standing.renews;
        remote.puts_shards = joined.standing.puts_shards;
        remote.inspects = joined.standing.inspects;
        remote.keeps_spares = joined.standing.keeps_spares;
        remote.told.clear();
        self.nodes.link(node, joined.link, joined.orders);
        let remote = self.nodes.remote(node);
        for order in pending.values() {
            remote.order(spawn_order(order));
        }
        if admitted.send(Ok(())).is_err() {
            self.nodes.unlink(node);
        }
        self.on_holder_joined(node, &joined.standing.held);
    }

    /// What the node has, if it may join.
    fn spec_of(&self, joined: &Joined) -> Result<NodeSpec, NodeRefused> {
        let (name, standing) = (joined.name.clone(), &joined.standing);
        let known = self.core.node_id(&name);
        if known == Some(NodeId::LEADER) {
            return Err(NodeRefused::Leader { name });
        }
        let other = known.and_then(|node| self.nodes.get(node));
        if other.is_some_and(|r| r.is_linked() && r.identity != standing.identity) {
            return Err(NodeRefused::Taken { name });
        }
        let of_job = known.and_then(|node| self.core.node(node));
        let pools: BTreeMap<String, u32> = match standing.pools.is_empty() {
            true => of_job.map(|n| n.pools.clone()).unwrap_or_default(),
            false => standing.pools.clone().into_iter().collect(),
        };
        if pools.is_empty() {
            return Err(NodeRefused::NoPools { name });
        }
        if let Some(refused) = NodeRefused::too_many(&name, &pools) {
            return Err(refused);
        }
        let used: BTreeSet<&str> = Role::ALL.map(|r| self.core.config().pool(r)).into();
        if !pools.keys().any(|pool| used.contains(pool.as_str())) {
            let has = pools.into_keys().collect::<Vec<_>>().join(", ");
            let pools = used.into_iter().collect::<Vec<_>>().join(", ");
            return Err(NodeRefused::UselessPools { name, has, pools });
        }
        let said = Labels {
            dc: standing.dc.clone(),
            rack: standing.rack.clone(),
            accel: standing.accel.clone(),
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
        self.decide();
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

    pub(in crate::driver) fn on_node_said(&mut self, link: LinkId, body: Up) {
        let Some(node) = self.nodes.by_link(link) else {
            return;
        };
        if !self.is_here(node) {
            return self.let_go(node);
        }
        match body {
            Up::Beat(_) => self.inputs.push_back(Input::Node(node, NodeEvent::Beat)),
            Up::Spawned(said) => self.on_spawned(node, Incarnation(said.incarnation), said.pid),
            Up::NotSpawned(said) => {
                let incarnation = Incarnation(said.incarnation);
                if self.runs_on(incarnation, node) {
                    self.forget(incarnation);
                    let reason = said.reason;
                    self.inputs
                        .push_back(Input::Role(incarnation, RoleEvent::SpawnFailed { reason }));
                }
            }
            Up::Exited(ended) => self.on_remote_exit(node, &ended),
            Up::Evidence(said) => {
                let incarnation = Incarnation(said.incarnation);
                if self.runs_on(incarnation, node) {
                    let seen = Seen {
                        state: ProcessState::from_word(&said.state),
                        frames: said.frames,
                    };
                    let text = said.text;
                    self.inputs
                        .push_back(Input::Role(incarnation, RoleEvent::Evidence { text, seen }));
                }
            }
            Up::LogRead(read) => self.on_log_read(read),
            Up::Inspected(found) => self.on_inspected(node, found),
            Up::Spares(spares) => self.nodes.remote(node).has_spares(spares),
            Up::Samples(samples) => self.on_node_samples(node, &samples),
            Up::Held(held) => self.on_held(node, &held),
            Up::Sent(sent) => self.on_sent(node, &sent),
            Up::Put(put) => self.on_put(node, put),
            Up::NotHeld(not_held) => self.on_not_held(node, not_held),
            Up::Leaving(said) => {
                let reason = said.reason;
                let leaving = Input::Node(node, NodeEvent::Leaving { reason });
                self.inputs.push_back(leaving);
            }
            Up::Leave(leave) => self.on_node_left(node, leave.reason),
            // The service lets it say that once.
            Up::Standing(_) => {}
        }
    }

    /// Whether what is ordered there is heard.
    pub(in crate::driver) fn is_in_reach(&self, node: NodeId) -> bool {
        node == NodeId::LEADER || self.nodes.get(node).is_some_and(Remote::is_linked)
    }

    /// Its process is known. A role may link before its node says so.
    pub(in crate::driver) fn on_spawned(
        &mut self,
        node: NodeId,
        incarnation: Incarnation,
        pid: u32,
    ) {
        let Some(process) = self.processes.get_mut(&incarnation) else {
            return;
        };
        if process.node == node && process.pid.is_none() {
            process.pid = Some(pid);
            if node != NodeId::LEADER {
                self.nodes.remote(node).forget(incarnation);
            }
            self.inputs
                .push_back(Input::Role(incarnation, RoleEvent::Spawned { pid }));
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
                self.gauges.note(incarnation, device_use(role));
                self.on_usage(incarnation, &usage);
            }
        }
        for report in &samples.devices {
            match serde_json::from_str::<Finding>(&report.finding) {
                Ok(finding) => self.inputs.push_back(Input::Node(
                    node,
                    NodeEvent::Hardware {
                        device: report.device,
                        finding,
                        users: self.users_there(node, &report.users),
                    },
                )),
                Err(error) => {
                    let name = self.core.node(node).map_or("?", |n| n.name.as_str());
                    tracing::warn!("node {name} says nonsense of a device: {error}");
                }
            }
        }
    }

    /// Those that do run there: what a node says of others' roles is nothing that it can know.
    fn users_there(&self, node: NodeId, said: &[u64]) -> Vec<Incarnation> {
        let said = said.iter().copied().map(Incarnation);
        said.filter(|one| self.runs_on(*one, node)).collect()
    }

    fn on_node_left(&mut self, node: NodeId, reason: String) {
        self.inputs
            .push_back(Input::Node(node, NodeEvent::Left { reason }));
        self.decide();
        self.let_go(node);
    }

    /// Whether the core counts on it.
    fn is_here(&self, node: NodeId) -> bool {
        self.core.node_state(node) == Some(NodeState::Here)
    }

    /// Those that the core gave up, whether their streams broke or stayed open: a machine that stands
    /// still or is cut off closes nothing.
    pub(in crate::driver) fn lost_nodes(&self) -> Vec<NodeId> {
        let lost = self.nodes.ids().filter(|node| !self.is_here(*node));
        lost.collect()
    }

    /// Lets go of those whose loss is durable; one that is back meanwhile stays.
    pub(in crate::driver) fn let_go_of(&mut self, lost: Vec<NodeId>) {
        for node in lost {
            if !self.is_here(node) {
                self.let_go(node);
            }
        }
    }

    /// The core gave it up. Its stream is ended: should it go on, it joins anew and says what it
    /// still runs.
    fn let_go(&mut self, node: NodeId) {
        if self.nodes.unlink(node) {
            tracing::warn!("{node} is let go");
        }
        self.on_holder_left(node);
        self.give_up_processes(node);
    }

    pub(in crate::driver) fn on_node_gone(&mut self, link: LinkId) {
        if let Some(node) = self.nodes.by_link(link) {
            tracing::warn!("the stream of {node} ended");
            self.nodes.unlink(node);
        }
    }

    /// Processes there that the core gave up are none of ours any more: should they live on, what
    /// they say is fenced, and they are killed when their node joins again.
    fn give_up_processes(&mut self, node: NodeId) {
        let over: Vec<Incarnation> = self
            .processes
            .iter()
            .filter(|(i, p)| p.node == node && self.core.is_current(**i).is_none())
            .map(|(incarnation, _)| *incarnation)
            .collect();
        for incarnation in over {
            self.forget(incarnation);
            // Agents may wait for its tokens over connections that look open.
            self.links.send_to_role(Role::Agent, &gone(incarnation));
        }
    }

    /// Tells an agent which of the rollouts that it waits for are no more.
    pub(in crate::driver) fn tell_of_the_gone(&self, agent: Incarnation, awaited: &[u64]) {
        for incarnation in awaited.iter().copied().map(Incarnation) {
            if self.core.is_current(incarnation).is_none() {
                self.links.send(agent, gone(incarnation));
            }
        }
    }

    /// After a restart: the processes of other nodes, as far as the core knows them. Their nodes
    /// will say which of them live.
    pub(in crate::driver) fn expect_remote_processes(&mut self) {
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
}
