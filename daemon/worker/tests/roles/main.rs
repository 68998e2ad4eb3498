//! The role processes' parts against a daemon, rollouts and peers that the tests play themselves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod agent;
mod faults;
mod fixture;
mod frameworks;
mod http;
mod memory;
mod process;
mod rollout;
mod spans;
mod spare;
mod swap;
mod tool;
mod trainer;
