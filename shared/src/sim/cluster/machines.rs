//! Machines: they join, beat, die, and are replaced.
use super::processes::Process;
use super::{Cluster, Event};
use crate::core::{Input, NodeEvent, NodeSpec};
use crate::ids::{InstanceId, NodeId};

impl Cluster {
    /// A machine becomes part of the job.
    pub(super) fn join(&mut self, node: NodeSpec) {
        let name = node.name.clone();
        let running = Vec::new();
        self.feed(Input::NodeJoined { node, running });
        let place = self.core.node_id(&name).map_or(0, |id| id.0 as usize);
        if self.machines.len() <= place {
            self.machines.resize(place + 1, true);
        }
    }

    /// The machine under an instance dies. Returns whether there was one that can.
    pub fn lose_machine_of(&mut self, id: InstanceId) -> bool {
        let life = self.life(id).filter(|life| self.alive(*life));
        let node = life.and_then(|life| self.process(life)).map(|p| p.node);
        node.is_some_and(|node| self.lose_machine(node))
    }

    /// A machine dies with all its processes, and another one like it is asked for. Returns false if
    /// it is the leader's own, or dead already.
    pub fn lose_machine(&mut self, node: NodeId) -> bool {
        if node == NodeId::LEADER || !self.machine_lives(node) {
            return false;
        }
        self.machines[node.0 as usize] = false;
        let there = |p: &&Process| p.node == node && p.alive;
        let dead: Vec<_> = self
            .processes
            .iter()
            .flatten()
            .filter(there)
            .map(|p| p.incarnation)
            .collect();
        for incarnation in dead {
            self.end(incarnation, false);
        }
        let timing = self.plan.timing;
        if self.plan.beats.is_zero() {
            let reason = "its machine died".to_owned();
            let left = Input::Node(node, NodeEvent::Left { reason });
            self.after(timing.node_seen, Event::Feed(Box::new(left)));
        }
        let Some(spec) = self.core.node(node).cloned() else {
            return true;
        };
        self.serial += 1;
        let name = format!("new-{}", self.serial);
        let another = Event::Join(Box::new(NodeSpec { name, ..spec }));
        self.after(timing.machine + timing.container, another);
        true
    }

    /// Machines alive, without the leader's own.
    pub fn machines(&self) -> impl Iterator<Item = NodeId> {
        let alive = |(at, lives): (usize, &bool)| {
            let node = NodeId(u32::try_from(at).unwrap_or(u32::MAX));
            (*lives && node != NodeId::LEADER).then_some(node)
        };
        self.machines.iter().enumerate().filter_map(alive)
    }

    /// All that live are heard.
    pub(super) fn beat(&mut self) {
        let alive: Vec<_> = self.machines().collect();
        for node in alive {
            self.feed(Input::Node(node, NodeEvent::Beat));
        }
        self.after(self.plan.beats, Event::Beats);
    }
}
