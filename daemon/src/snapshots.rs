//! Where the shards of a snapshot are: what the gang's work makes, the driver remembers, and a restore
//! begins with.
use robust_proto::v1;
use robust_shared::ids::Generation;
use serde::{Deserialize, Serialize};

/// The shards of one step's snapshot, in rank order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SnapshotShards {
    /// The gang that took it.
    pub generation: Generation,
    /// Where each rank's shard is.
    pub shards: Vec<v1::SnapshotReply>,
    /// The nodes that the ranks ran on, whose word on their shards counts; none where nobody noted them.
    #[serde(default)]
    pub homes: Vec<String>,
}
