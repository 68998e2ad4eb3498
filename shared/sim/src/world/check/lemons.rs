//! Nodes that are cordoned for their faults, held against what really failed there.
use super::super::World;
use robust_shared::core::{Incident, Input, NodeState, SlotRef};
use robust_shared::ids::{IncidentId, InstanceId, NodeId, Role};
use robust_shared::wire::InstanceState;
use std::collections::{BTreeMap, BTreeSet};

/// What failed where.
#[derive(Clone, Debug, Default)]
pub(super) struct Lemons {
    /// The controller was told to start: before that it takes in facts only, and houses nobody.
    started: bool,
    /// Who had a slot where before the present input.
    homes: BTreeMap<InstanceId, NodeId>,
    /// Nodes that were there before it.
    here: BTreeSet<NodeId>,
    /// Incidents of no other's making, by the node where they were.
    incidents: BTreeMap<NodeId, BTreeSet<IncidentId>>,
    /// Hangs of which the root was named.
    rooted: BTreeSet<IncidentId>,
    /// How often a node was lost.
    losses: BTreeMap<NodeId, usize>,
}

impl Lemons {
    /// A new life of the controller.
    pub fn restored(&mut self) {
        self.started = false;
    }

    /// An incident is told of.
    pub fn decided(&mut self, incident: &Incident) {
        let whose = [Some(incident.who), incident.judged];
        let root = incident.root.as_ref().and_then(|root| root.one());
        let whose = whose.into_iter().flatten().chain(root.map(|(who, _)| who));
        for who in whose.filter(|_| incident.under.is_none()) {
            if let Some(node) = self.homes.get(&who) {
                self.incidents.entry(*node).or_default().insert(incident.id);
            }
        }
    }

    /// Where somebody else restarts one that hangs its root is named at once, and told of when all is over.
    fn roots(&mut self, incidents: &[Incident]) {
        for incident in incidents.iter().filter(|i| i.root.is_some()) {
            if self.rooted.insert(incident.id) {
                self.decided(incident);
            }
        }
    }

    fn count(&self, node: NodeId) -> usize {
        let incidents = self.incidents.get(&node).map_or(0, BTreeSet::len);
        incidents + self.losses.get(&node).copied().unwrap_or(0)
    }
}

impl World {
    fn has_lemons(&self) -> bool {
        self.config.cordon_after > 0 && self.config.nodes.len() > 1
    }

    /// The controller is about to be told something.
    pub(in super::super) fn look_at_lemons(&mut self, input: &Input) {
        if !self.has_lemons() {
            return;
        }
        self.checker.lemons.started |= *input == Input::Start;
        let view = self.core.view(self.now);
        let homes = view
            .instances
            .iter()
            .filter_map(|i| Some((i.id, i.slot.as_ref()?.node)));
        let here = (0..).map(NodeId).zip(&view.nodes);
        let here = here.filter(|(_, n)| n.node.state == NodeState::Here);
        let lemons = &mut self.checker.lemons;
        lemons.homes = homes.collect();
        lemons.here = here.map(|(id, _)| id).collect();
    }

    /// It was told, and said what follows: no node is cordoned for fewer faults than it takes, and nobody
    /// waits for a slot that such a node has.
    pub(in super::super) fn check_lemons(&mut self) {
        if !self.has_lemons() {
            return;
        }
        let view = self.core.view(self.now);
        self.checker.lemons.roots(&view.incidents);
        for (id, seen) in (0..).map(NodeId).zip(&view.nodes) {
            let lost = seen.node.state == NodeState::Lost;
            if lost && self.checker.lemons.here.remove(&id) {
                *self.checker.lemons.losses.entry(id).or_default() += 1;
            }
            if !seen.node.faults.cordoned() {
                continue;
            }
            let (name, count) = (&seen.node.spec.name, self.checker.lemons.count(id));
            let enough = count >= self.config.cordon_after as usize;
            self.must(enough, "lemons", || {
                format!("{name} is cordoned by itself after {count} faults")
            });
            let serves = seen.node.state == NodeState::Here && !seen.node.leaving;
            if !serves || !self.checker.lemons.started {
                continue;
            }
            for who in view
                .instances
                .iter()
                .filter(|i| i.state == InstanceState::Waiting)
            {
                let slot = self.free_at(id, &view, who.id.role);
                let waits = slot.is_some() && who.slot.is_none() && !self.is_surplus(who.id);
                self.must(!waits, "lemons", || {
                    let who = who.id;
                    format!("{who} waits, and {slot:?} of {name}, cordoned by itself, is free")
                });
            }
        }
    }

    /// A slot of the role's pool on a node that nobody has. Ranks are alike only where all their slots are.
    fn free_at(
        &self,
        node: NodeId,
        view: &robust_shared::core::View,
        role: Role,
    ) -> Option<SlotRef> {
        let pool = self.config.pool(role);
        let seen = &view.nodes.get(node.0 as usize)?.node;
        let of_ranks = |n: &&robust_shared::core::NodeView| {
            n.node.spec.pools.get(pool).is_some_and(|n| *n > 0)
        };
        let mut labels = view
            .nodes
            .iter()
            .filter(of_ranks)
            .map(|n| &n.node.spec.labels);
        let alike = labels.all(|l| l.homogeneous(&seen.spec.labels));
        if role == Role::Hybrid || (role == Role::Trainer && !alike) {
            return None;
        }
        let slots = 0..seen.spec.pools.get(pool).copied().unwrap_or(0);
        let free = |index: &u32| {
            let key = (pool.to_owned(), *index);
            let here = |s: &SlotRef| s.node == node && s.pool == pool && s.index == *index;
            let taken = view
                .instances
                .iter()
                .any(|i| i.slot.as_ref().is_some_and(here));
            !taken && !seen.lost.contains(&key) && !seen.draining.contains(&key)
        };
        let index = slots.into_iter().find(free)?;
        let pool = pool.to_owned();
        Some(SlotRef { node, pool, index })
    }
}
