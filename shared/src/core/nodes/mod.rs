//! The machines of the job and their slots.
mod spec;

pub use spec::{Labels, NodeSpec, SlotRef};

use super::Core;
use crate::ids::{InstanceId, NodeId};

impl Core {
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
