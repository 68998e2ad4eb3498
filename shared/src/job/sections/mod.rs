//! The sections of a job file, one struct each; units are in the names.

mod agent_command;
mod alarms;
mod command;
mod detect;
mod learn;
mod limits;
mod operate;
mod program;
mod roles;
mod service;
mod task;
mod trainer_command;

pub use agent_command::{AgentCommand, Attaches};
pub use alarms::Alarms;
pub(in crate::job) use alarms::wrong_address;
pub use command::{
    Canary, Dtype, EngineHealth, EngineKind, EngineWeights, Flush, HybridMode, Isolate, PauseMode,
    ProbeBy, RolloutCommand, Verification,
};
pub use detect::{Detect, DetectValue};
pub use learn::{BatchShape, Data, Model, ModelConfig, Train, WarmupSettings};
pub use limits::Limits;
pub use operate::{
    CONTROLLERS, Checkpoint, Ha, KeptStore, KindBudget, Node, PublishAfter, Restart,
    WeightTransport, Weights, WrittenBy,
};
pub use program::{Ready, Stop, StopSignal};
pub use roles::{Agent, Rollout, Swap, Tool, Trainer};
pub use service::{Needed, Service, ServiceHealth};
pub use task::{ControlGroups, General, HideState, Mode, Policy};
pub use trainer_command::{Kept, Launcher, Level, TrainerCommand, TrainerReady, Watch};
