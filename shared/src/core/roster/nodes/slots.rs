//! Who occupies which slot, and which are free for whom; derived from instances and nodes.
//!
//! Roles of one pool share its slots: a slot holds one instance of each. One that was taken for a
//! rank of another pool (warm standby) is that rank's alone.
use super::spec::SlotRef;
use super::table::NodeTable;
use crate::core::roster::instances::ROLES;
use crate::core::{CoreConfig, Mutation};
use crate::ids::{InstanceId, NodeId, Role};
use std::collections::{BTreeMap, BTreeSet};

/// The occupation of all slots.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::core) struct Slots {
    takers: BTreeMap<SlotRef, BTreeSet<InstanceId>>,
    /// Slots a role's instance may be started in, in the order of nodes.
    free: [BTreeSet<SlotRef>; ROLES],
    of: [Vec<Option<SlotRef>>; ROLES],
    /// Slots that are left: they are about to fail, or their nodes to leave.
    draining: BTreeSet<SlotRef>,
}

impl Slots {
    /// Free slots of the role's pool, in the order of nodes.
    pub fn free(&self, role: Role) -> impl Iterator<Item = &SlotRef> {
        self.free[role as usize].iter()
    }

    /// Slots that are about to fail, or whose nodes are to leave.
    pub fn draining(&self) -> impl Iterator<Item = &SlotRef> {
        self.draining.iter()
    }

    /// Who occupies a slot.
    pub fn takers(&self, slot: &SlotRef) -> impl Iterator<Item = InstanceId> + use<'_> {
        self.takers.get(slot).into_iter().flatten().copied()
    }

    /// Who occupies a node's slots.
    pub fn on_node(&self, node: NodeId) -> Vec<InstanceId> {
        let all = self.takers.range(first_of(node)..);
        let here = all.take_while(|(slot, _)| slot.node == node);
        here.flat_map(|(_, who)| who.iter().copied()).collect()
    }

    /// Takes in where an instance is now. Returns whether that is news.
    pub fn place(
        &mut self,
        id: InstanceId,
        slot: Option<&SlotRef>,
        nodes: &NodeTable,
        config: &CoreConfig,
    ) -> bool {
        let known = &mut self.of[id.role as usize];
        let at = id.index as usize;
        if known.get(at).and_then(Option::as_ref) == slot {
            return false;
        }
        if known.len() <= at {
            known.resize_with(at + 1, || None);
        }
        let old = std::mem::replace(&mut known[at], slot.cloned());
        while known.last() == Some(&None) {
            known.pop();
        }
        if let Some(old) = &old {
            let left = self.takers.get_mut(old);
            if left.is_some_and(|who| who.remove(&id) && who.is_empty()) {
                self.takers.remove(old);
            }
        }
        if let Some(slot) = slot {
            self.takers.entry(slot.clone()).or_default().insert(id);
        }
        for slot in old.iter().chain(slot) {
            self.judge(slot, nodes, config);
        }
        true
    }

    /// Takes in what a node is like now.
    pub fn survey(&mut self, node: NodeId, nodes: &NodeTable, config: &CoreConfig) {
        for free in &mut self.free {
            let gone: Vec<_> = free
                .range(first_of(node)..)
                .take_while(|slot| slot.node == node)
                .cloned()
                .collect();
            for slot in gone {
                free.remove(&slot);
            }
        }
        self.draining.retain(|slot| slot.node != node);
        for (pool, index) in nodes.get(node).into_iter().flat_map(|n| n.left_slots()) {
            self.draining.insert(SlotRef { node, pool, index });
        }
        let pools = nodes.get(node).map(|n| &n.spec.pools);
        for (pool, count) in pools.into_iter().flatten() {
            for index in 0..*count {
                let pool = pool.clone();
                self.judge(&SlotRef { node, pool, index }, nodes, config);
            }
        }
    }

    /// Finds out for whom a slot is free.
    fn judge(&mut self, slot: &SlotRef, nodes: &NodeTable, config: &CoreConfig) {
        let usable = nodes.usable(slot);
        for role in Role::ALL {
            let fits = |taker: InstanceId| {
                (taker.role != role || config.mutant(Mutation::ShareSlot))
                    && config.pool(taker.role) == slot.pool.as_str()
            };
            let free = usable
                && role != Role::Hybrid
                && config.pool(role) == slot.pool.as_str()
                && self.takers(slot).all(fits);
            let known = &mut self.free[role as usize];
            if !free {
                known.remove(slot);
            } else if !known.contains(slot) {
                known.insert(slot.clone());
            }
        }
    }
}

fn first_of(node: NodeId) -> SlotRef {
    SlotRef {
        node,
        pool: String::new(),
        index: 0,
    }
}
