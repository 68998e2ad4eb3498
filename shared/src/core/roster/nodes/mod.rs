//! The machines of the job and their slots: who is there ([`NodeState`]), what is lost, where everybody
//! lives. The leader's own node is always here. What runs on a node that comes back and is over is fenced
//! (I-1); what is current goes on.
mod faults;
mod homes;
mod placement;
mod slots;
mod spec;
mod table;

pub(in crate::core) use faults::whole;
pub use faults::{Faults, NodeFault};
pub(in crate::core) use homes::Given;
pub use homes::{Home, Move, NoHome};
pub(in crate::core) use placement::Placement;
pub(in crate::core) use slots::Slots;
pub use spec::{Labels, NodeSpec, SlotRef};
pub use table::{Node, NodeState, NodeTable};
