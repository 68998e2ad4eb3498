//! The simulator: the same [`crate::core::Core`] that `robustd` drives with real processes, driven
//! here in virtual time against a world of virtual ones.
//!
//! ```text
//!  faults ──► world ── Input ──► Core ── Output ──► world (processes, links, store, daemon)
//!                       │                  │
//!                       └───► checker ◄────┘   a shadow model that shares nothing with the core
//! ```
//! One thread, no clock, no randomness but [`dice::Dice`]: the same seed gives the same journal,
//! byte for byte.
mod causes;
pub mod cluster;
pub mod controllers;
pub mod coverage;
pub mod dice;
mod fault;
pub mod faults;
pub mod fixture;
mod lemons;
mod moment;
#[cfg(feature = "mutations")]
pub mod mutations;
pub mod paper;
pub mod scale;
pub mod search;
mod shape;
pub mod shrink;
pub mod stream;
mod swarm;
pub mod trace;
pub mod weights;
pub mod world;

#[cfg(test)]
mod tests;
