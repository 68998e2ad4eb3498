//! Machines: they join, beat, die, and are replaced.
use super::{Cluster, Event};
use robust_shared::core::{Input, NodeEvent, NodeSpec};
use robust_shared::ids::{InstanceId, NodeId};

impl Cluster {
    /// A machine becomes part of the job, or comes back to it.
    pub fn join(&mut self, node: NodeSpec) {
        let name = node.name.clone();
        let known = self.core.node_id(&name).map(|id| id.0 as usize);
        // It is there before the controller hears of it, which may start something on it at once.
        if let Some(machine) = known.and_then(|place| self.machines.get_mut(place)) {
            *machine = true;
        }
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
        if !self.machine_dies(node, "its machine died") {
            return false;
        }
        let Some(spec) = self.core.node(node).cloned() else {
            return true;
        };
        self.serial += 1;
        let name = format!("new-{}", self.serial);
        let another = Event::Join(Box::new(NodeSpec { name, ..spec }));
        let timing = self.plan.timing;
        self.after(timing.machine + timing.container, another);
        true
    }

    /// A machine dies with all its processes, and none is asked for in its place. Returns false if it is the
    /// leader's own, or dead already.
    pub fn machine_dies(&mut self, node: NodeId, why: &str) -> bool {
        if node == NodeId::LEADER || !self.machine_lives(node) {
            return false;
        }
        self.machines[node.0 as usize] = false;
        for incarnation in self.living_on(node) {
            self.struck(incarnation);
            self.end(incarnation, false);
        }
        if self.plan.beats.is_zero() {
            let reason = why.to_owned();
            let left = Input::Node(node, NodeEvent::Left { reason });
            self.after(self.plan.timing.node_seen, Event::Feed(Box::new(left)));
        }
        true
    }

    /// A machine says that it will leave: who is there moves when he can, and nobody new comes to it.
    pub fn machine_will_leave(&mut self, node: NodeId, why: &str) {
        if self.machine_lives(node) && node != NodeId::LEADER {
            let reason = why.to_owned();
            self.feed(Input::Node(node, NodeEvent::Leaving { reason }));
        }
    }

    /// Machines alive, without the leader's own.
    pub fn machines(&self) -> impl Iterator<Item = NodeId> {
        let alive = |(at, lives): (usize, &bool)| {
            let node = NodeId(u32::try_from(at).unwrap_or(u32::MAX));
            (*lives && node != NodeId::LEADER).then_some(node)
        };
        self.machines.iter().enumerate().filter_map(alive)
    }

    /// All that live are heard. Where heartbeats are not simulated it must be now and then: nothing that is not
    /// heard for the longest window that a rule may have is taken for alive.
    pub fn machines_are_heard(&mut self) {
        let alive: Vec<_> = self.machines().collect();
        for node in alive {
            self.feed(Input::Node(node, NodeEvent::Beat));
        }
    }

    pub(super) fn beat(&mut self) {
        self.machines_are_heard();
        self.after(self.plan.beats, Event::Beats);
    }
}
