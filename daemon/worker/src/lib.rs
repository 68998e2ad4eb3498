//! Built-in role processes: the parts that the binary `robust-worker` and its tests share.
//!
//! They are programs over [`robust_role`], which links them to the daemon; here is what they compute.

pub mod agent;
pub mod doctor;
mod error;
pub mod manifest;
pub mod memory;
pub mod model;
pub mod rollout;
pub mod tool;
pub mod trainer;

pub use error::StartError;
