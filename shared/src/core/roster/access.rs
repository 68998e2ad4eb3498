//! How the roster is changed: what happens to one instance, to a node or to a slot.
use super::Roster;
use super::instance::Instance;
use super::instances::Current;
use super::nodes::{NodeSpec, NodeState, NodeTable, SlotRef, Slots};
use crate::changed::Layers;
use crate::core::config::CoreConfig;
use crate::core::detect::node_lost;
use crate::core::input::Sample;
use crate::core::mutation::Mutation;
use crate::ids::{Generation, Incarnation, InstanceId, NodeId, Role, Step};
use crate::phase::Phase;
use crate::time::Time;

/// Instances.
impl Roster {
    /// The instance with this id.
    pub fn get_mut(&mut self, id: InstanceId) -> Option<&mut Instance> {
        self.instances.get_mut(id)
    }

    /// The instance that the fence found.
    pub fn of_mut(&mut self, current: Current) -> &mut Instance {
        self.instances.of_mut(current)
    }

    /// The instance whose present incarnation this is; none for an older one (I-1).
    pub fn life_mut(&mut self, incarnation: Incarnation) -> Option<&mut Instance> {
        self.instances.life_mut(incarnation)
    }

    /// A sample of the instance that the fence found.
    pub fn measure(&mut self, current: Current, sample: Sample, now: Time) -> &Instance {
        self.instances.measure(current, sample, now)
    }

    /// The instance that the fence found enters a phase.
    pub fn enter(&mut self, current: Current, phase: Phase, step: Step, now: Time) -> &Instance {
        self.instances.enter(current, phase, step, now)
    }

    /// An engine has requests from now on: its tokens are waited for.
    pub fn load_begins(&mut self, incarnation: Incarnation, now: Time) {
        self.instances.load_begins(incarnation, now);
    }

    /// The next incarnation of an instance; 0 is none.
    pub fn reborn(
        &mut self,
        id: InstanceId,
        incarnation: Incarnation,
        generation: Generation,
        now: Time,
    ) -> Option<&mut Instance> {
        self.instances.reborn(id, incarnation, generation, now)
    }

    /// One place more.
    pub fn add_place(&mut self, role: Role) -> InstanceId {
        self.instances.push(role)
    }

    /// The highest place is no more.
    pub fn drop_place(&mut self, role: Role) {
        self.instances.pop(role);
    }

    /// A process ended whose place has another incarnation already.
    pub fn has_left(&mut self, incarnation: Incarnation) {
        self.instances.has_left(incarnation);
    }

    /// Nobody said until now that an engine ended which was to: its node is lost, or the word of it was.
    pub fn end_leaving(&mut self, id: InstanceId, now: Time) {
        let overdue = |i: &Instance| i.leaving().is_some_and(|(_, until)| until <= now);
        if self.instances.get(id).is_some_and(overdue)
            && let Some(i) = self.instances.get_mut(id)
        {
            i.has_left();
        }
    }

    /// The daemon was away: links are gone, and nobody saw what anybody did meanwhile. Every node joins anew, and one
    /// that will leave says so again then; it may have changed its mind since that was stored.
    pub fn rejoin(&mut self, now: Time, config: &CoreConfig) {
        let window = &config.rules.attach_overdue.window;
        for i in self.instances.iter_mut() {
            i.rejoin(now, now + window.of(i.id().role));
        }
        let about_to_leave = |id: &NodeId| self.nodes.get(*id).is_some_and(|n| n.leaving);
        for id in self.nodes.ids().filter(about_to_leave).collect::<Vec<_>>() {
            if let Some(node) = self.nodes.get_mut(id) {
                node.leaving = false;
            }
        }
    }

    /// Nobody watched what anybody did until now.
    pub fn unwatched(&mut self, now: Time) {
        for i in self.instances.iter_mut() {
            i.unwatched(now);
        }
    }

    /// The daemon was away, too: engines may have been told what is not on record, or not what is.
    pub fn forget_turns(&mut self) {
        self.instances.forget_turns();
    }

    /// Which instances changed since this was last asked; none: all of them, or that is wanted.
    pub fn take_changed_instances(&mut self, all: bool) -> Option<Layers<InstanceId>> {
        self.instances.take_changed(all)
    }
}

/// Nodes and slots.
impl Roster {
    /// A node was heard of.
    pub fn beat(&mut self, node: NodeId, now: Time) {
        self.nodes.beat(node, now);
    }

    /// A node joins, or comes back; a known name keeps its number.
    pub fn join(&mut self, spec: NodeSpec, now: Time) -> NodeId {
        self.nodes.join(spec, now)
    }

    /// A node is gone, in this way.
    pub fn node_is_gone(&mut self, node: NodeId, state: NodeState) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.state = state;
        }
    }

    /// Nothing new is started on a node, or again.
    pub fn cordon(&mut self, node: NodeId, out: bool) {
        self.nodes.cordon(node, out);
    }

    /// Faults of nodes, and what follows from them for these.
    pub fn nodes_mut(&mut self) -> &mut NodeTable {
        &mut self.nodes
    }

    /// Nodes and slots as they would be if a node were cordoned, or not; the index is to be up to date.
    pub fn supposing(
        &self,
        config: &CoreConfig,
        node: NodeId,
        cordoned: bool,
    ) -> (NodeTable, Slots) {
        let (mut nodes, mut slots) = (self.nodes.clone(), self.index.slots().clone());
        nodes.cordon_for_faults(node, cordoned);
        slots.survey(node, &nodes, config);
        (nodes, slots)
    }

    /// When a node counts as lost, if it is not heard.
    pub fn node_deadline(&self, config: &CoreConfig, node: NodeId) -> Option<Time> {
        let rules = &config.rules;
        let watched = node != NodeId::LEADER && !rules.is_off(&node_lost::RULE);
        let there = self.nodes.get(node).filter(|_| watched);
        let here = there.filter(|n| n.state == NodeState::Here);
        here.map(|n| n.beat_at + rules.node_lost.window.get())
    }

    /// Takes a slot out of use. Returns who is in it; the index is to be up to date.
    pub fn lose_slot(&mut self, config: &CoreConfig, slot: &SlotRef) -> Vec<InstanceId> {
        let takers: Vec<_> = self.index.slots().takers(slot).collect();
        let kept = config.mutant(Mutation::KeepLostSlot);
        if let Some(node) = self.nodes.get_mut(slot.node).filter(|_| !kept) {
            node.lost.insert((slot.pool.clone(), slot.index));
        }
        takers
    }

    /// Nobody new comes to a slot, and who is in it leaves when it can. Returns whether that is news.
    pub fn drain_slot(&mut self, slot: &SlotRef) -> bool {
        let key = (slot.pool.clone(), slot.index);
        let node = self.nodes.get_mut(slot.node);
        node.is_some_and(|n| n.draining.insert(key))
    }

    /// Nobody new comes to a node, and who is there leaves when he can. Returns whether that is news.
    pub fn node_is_leaving(&mut self, node: NodeId) -> bool {
        let node = self.nodes.get_mut(node);
        node.is_some_and(|n| !std::mem::replace(&mut n.leaving, true))
    }

    /// A slot may be used again.
    pub fn restore_slot(&mut self, slot: &SlotRef) {
        let key = (slot.pool.clone(), slot.index);
        if let Some(node) = self.nodes.get_mut(slot.node) {
            node.lost.remove(&key);
            node.draining.remove(&key);
        }
    }

    /// Which nodes changed since this was last asked; none: all of them, or that is wanted.
    pub fn take_changed_nodes(&mut self, all: bool) -> Option<Layers<NodeId>> {
        self.nodes.take_changed(all)
    }
}
