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

    /// The slot of a place: on the leader's own node, one for each instance.
    pub(super) fn slot_of(&mut self, id: InstanceId) -> SlotRef {
        let slot = SlotRef {
            node: NodeId::LEADER,
            pool: self.config.role(id.role).pool,
            index: id.index,
        };
        if let Some(i) = self.s.instances.get_mut(id) {
            i.slot = Some(slot.clone());
        }
        slot
    }
}
