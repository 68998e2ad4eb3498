//! The domain of RobustRL: everything that decides, nothing that acts.
//!
//! No I/O, no clock, no randomness, no async: time comes in as [`time::Time`], effects leave as
//! values. `robustd` drives [`core::Core`] with real processes; the simulator (`robust_sim`) drives the same type.
//!
//! # Invariants
//! - **I-1** At most one trainer generation is alive; effects of an older generation or incarnation
//!   are dropped.
//! - **I-2** An acknowledged turn of a trajectory is never lost and is generated again by nobody.
//! - **I-3** Each trajectory is consumed by exactly one committed training step; by one that does not
//!   train on it where it took engines along and was set aside.
//! - **I-4** Weight versions never go back, across every restart; a rollout serves only a version
//!   whose digest it verified.
//! - **I-5** A version is published only when a trainer could be restored at it.
//! - **I-6** At any time each source serves at most its allowed number of pullers (default one).
//! - **I-7** No endless restart: every restart is counted against a budget, and the third strike
//!   for one cause escalates.
//! - **I-8** A role that is healthy by its own phase's rules is never killed, and the deaths of
//!   engines that a trajectory took along count against no engine.
//! - **I-9** In sync mode with deterministic roles, the weights after N steps with any recoverable
//!   faults equal, bit for bit, those of the run without faults.

pub mod audit;
pub mod batch;
pub mod changed;
pub mod core;
pub mod dispatch;
pub mod drill;
pub mod ettr;
pub mod fault;
pub mod figure;
pub mod footprint;
#[cfg(test)]
mod forge;
pub mod grpo;
pub mod ha;
pub mod hardware;
pub mod hash;
pub mod history;
pub mod ids;
pub mod job;
pub mod median;
pub mod nearest;
pub mod note;
pub mod outliers;
pub mod phase;
pub mod printable;
pub mod promises;
pub mod replicas;
pub mod service;
pub mod spare;
pub mod time;
pub mod trial;
pub mod verbs;
pub mod weights;
pub mod wire;
