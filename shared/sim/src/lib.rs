//! The simulator: the same [`robust_shared::core::Core`] that `robustd` drives with real processes, driven
//! here in virtual time against a world of virtual ones.
//!
//! ```text
//!  faults ──► world ── Input ──► Core ── Output ──► world (processes, links, store, daemon)
//!                       │                  │
//!                       └───► checker ◄────┘   a shadow model that shares nothing with the core
//! ```
//! [`faults`] draws what befalls a job, [`world`] plays it and holds the invariants, [`search`] and [`shrink`] look for the
//! seed that breaks one and for the least that still does. Long runs and many nodes ([`paper`], [`trace`], [`scale`],
//! [`weights`]) are played by the plainer world of `robust_ahead`, which forecasts use too.
//!
//! One thread, no clock, no randomness but [`robust_ahead::dice::Dice`]: the same seed gives the same journal,
//! byte for byte. No program that runs jobs is built with this crate; `robustctl sim` is.
pub mod coverage;
pub mod faults;
pub mod fixture;
#[cfg(feature = "mutations")]
pub mod mutations;
pub mod paper;
pub mod scale;
pub mod search;
pub mod shrink;
pub mod stream;
pub mod trace;
pub mod weights;
pub mod world;

#[cfg(test)]
mod tests;
