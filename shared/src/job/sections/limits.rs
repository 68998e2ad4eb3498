//! `limits` of a role or a service: what one of its processes may use of its machine.
use super::super::size::MemorySize;
use serde::{Deserialize, Serialize};

/// `limits`: what a process of this kind, together with everything that it starts, may use of its machine. The
/// kernel holds it to that by a control group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Most memory, with what it is the first to write in `/dev/shm` and what it has of files in the page cache
    /// (which the kernel gives up first); swap is not used beside it. Where it is reached, the kernel kills
    /// a process in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemorySize>,
    /// Most processor time, in processors: with 2.5 it may use two and a half of them all the time. It waits
    /// when it has used that up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    /// Most processes and threads; to start another one fails then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
}

impl Limits {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
