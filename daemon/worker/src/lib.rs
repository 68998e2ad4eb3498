//! Built-in role processes: the parts that the binary `robust-worker` and its tests share.

pub mod agent;
pub mod attach;
pub mod doctor;
pub mod model;
pub mod rollout;
pub mod tool;
pub mod trainer;
