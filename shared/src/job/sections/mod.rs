//! The sections of a job file, one struct each; units are in the names.

mod detect;
mod learn;
mod operate;
mod roles;
mod task;

pub use detect::{Detect, DetectValue};
pub use learn::{BatchShape, Data, Model, ModelConfig, Train, WarmupSettings};
pub use operate::{Checkpoint, KindBudget, Node, PublishAfter, Restart, Weights};
pub use roles::{Agent, Rollout, Swap, Tool, Trainer};
pub use task::{General, Mode, Policy};
