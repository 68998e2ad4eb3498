//! The node daemon: hosts roles, detects and recovers, persists checkpoints and trajectories.
//!
//! ```text
//!  cli ──► driver ◄──► shared::core (decides)        grpc: Control, RoleHost
//!            │  │ └──► control (the gang's calls)      │
//!            │  └────► launcher, telemetry             └──► events ──► driver
//!            └───────► store, ckpt (durable)
//! ```
pub mod audit;
pub mod ckpt;
pub mod cli;
pub mod control;
pub mod digests;
pub mod driver;
pub mod engines;
pub mod files;
pub mod grouping;
pub mod grouplog;
pub mod grpc;
pub mod ha;
pub mod incidents;
pub mod known;
pub mod launcher;
pub mod leases;
pub mod links;
pub mod logging;
pub mod metrics;
pub mod node;
pub mod nodes;
pub mod notes;
mod probe;
mod random;
pub mod report;
pub mod router;
pub mod services;
pub mod snapshots;
mod spares;
pub mod state;
pub mod store;
pub mod telemetry;
pub mod tell;
pub mod texts;
pub mod traces;
pub mod webhook;
pub mod witness;
pub mod worker;
