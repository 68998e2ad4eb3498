//! What is heard of the gang's work.
use super::{Replayed, StepOutcome};
use crate::snapshots::SnapshotShards;
use robust_shared::ids::Step;

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
    /// A snapshot's shards are in this machine's memory again.
    Brought {
        /// Of which step.
        step: Step,
        /// Where they are now.
        brought: SnapshotShards,
    },
}
