//! A controller run ahead: a cluster in virtual time around a [`robust_shared::core::Core`], and what an operator's wish
//! would bring, as a copy of a live controller shows it there.
//!
//! ```text
//!  forecast ──► cluster ──► dice   how long each thing takes
//!                  └──────► wire   who sends which chunk of a version over which link
//! ```
//! `robustd` answers forecasts with it; the simulator (`robust_sim`) runs the same cluster for days and thousands of nodes.
//! No I/O, no clock, no randomness but [`dice::Dice`]: the same plan gives the same run.
pub mod cluster;
pub mod dice;
pub mod forecast;
pub mod wire;
