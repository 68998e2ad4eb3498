//! The machines of the job and their slots.
mod spec;

pub use spec::{Labels, NodeSpec, SlotRef};

use super::Core;
use crate::ids::{InstanceId, NodeId};

impl Core {
    /// A node of the job.
    pub fn node(&self, id: NodeId) -> Option<&NodeSpec> {
        self.config.nodes.get(id.0 as usize)
    }

    /// The node of that name.
    pub fn node_id(&self, name: &str) -> Option<NodeId> {
        let at = self.config.nodes.iter().position(|n| n.name == name)?;
        u32::try_from(at).ok().map(NodeId)
    }

    /// The slot of a place: the one that the job file's nodes, filled in their order, give it.
    pub(super) fn slot_of(&mut self, id: InstanceId) -> SlotRef {
        let role = self.config.role(id.role);
        let may = |n: &&NodeSpec| role.node.as_ref().is_none_or(|pin| *pin == n.name);
        let nodes = self.config.nodes.iter().filter(may);
        let mut slots = nodes.flat_map(|n| {
            let count = n.pools.get(&role.pool).copied().unwrap_or(0);
            (0..count).map(|index| (n.name.clone(), index))
        });
        let found = slots.nth(id.index as usize);
        let (node, index) = found.map_or((NodeId::LEADER, id.index), |(name, index)| {
            (self.node_id(&name).unwrap_or_default(), index)
        });
        let pool = role.pool;
        let slot = SlotRef { node, pool, index };
        if let Some(i) = self.s.instances.get_mut(id) {
            i.slot = Some(slot.clone());
        }
        slot
    }
}
