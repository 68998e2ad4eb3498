//! What is heard of the gang's work.
use super::{Replayed, StepOutcome};
use robust_proto::v1;
use robust_shared::replicas::ShardKey;

/// One thing that the gang's tasks came to.
#[derive(Debug)]
pub enum GangWorkEvent {
    /// The gang's calls for one output ended.
    Ended {
        /// Names the task.
        task: u64,
        /// How.
        outcome: Box<StepOutcome>,
    },
    /// The gang trains committed steps again on its way to the last one.
    Replayed {
        /// Names the task.
        task: u64,
        /// How far it is.
        replayed: Box<Replayed>,
    },
    /// A shard of a snapshot is in this machine's memory, too.
    Brought {
        /// Which.
        key: ShardKey,
        /// Where it is, and what.
        shard: v1::SnapshotReply,
    },
    /// A shard that was to be held on this machine, too, could not be had.
    NotBrought {
        /// Which.
        key: ShardKey,
        /// Why.
        reason: String,
    },
}
