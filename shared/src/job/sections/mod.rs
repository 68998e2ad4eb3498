//! The sections of a job file, one struct each; units are in the names.

mod learn;
mod operate;
mod roles;
mod task;

pub use learn::{BatchShape, Data, Model, ModelConfig, Train, WarmupSettings};
pub use operate::{Checkpoint, Detect, Node, Restart, Weights};
pub use roles::{Agent, Rollout, Tool, Trainer};
pub use task::{General, Mode, Policy};
