//! Faults that a role does to itself, as the daemon asks for them.

mod agent;
mod process;
mod rollout;
mod trainer;
