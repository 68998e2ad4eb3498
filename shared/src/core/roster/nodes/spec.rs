//! What a node has, and how a slot is named.
use crate::ids::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Where a node is and what its accelerators are. Slots of equal `accel` and `dc` are homogeneous: a
/// rank may move between them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Labels {
    /// Data centre; a gang does not span two.
    pub dc: String,
    /// Rack.
    pub rack: String,
    /// Accelerator model.
    pub accel: String,
}

impl Labels {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether a rank may move between the two.
    pub fn homogeneous(&self, other: &Labels) -> bool {
        (&self.dc, &self.accel) == (&other.dc, &other.accel)
    }
}

/// A machine and the named sets of its slots.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// Unique name.
    pub name: String,
    /// Where it is.
    #[serde(default)]
    pub labels: Labels,
    /// Slots by pool.
    pub pools: BTreeMap<String, u32>,
}

/// One slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SlotRef {
    /// The node.
    pub node: NodeId,
    /// The pool's name.
    pub pool: String,
    /// The slot within the pool on that node, from 0.
    pub index: u32,
}

impl fmt::Display for SlotRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "slot {} of pool `{}` on {}",
            self.index, self.pool, self.node
        )
    }
}
