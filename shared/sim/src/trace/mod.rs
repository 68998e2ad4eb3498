//! Faults as they really came: a trace of them, or one that is drawn from a table of causes, on a cluster of
//! so many machines and spares, for as long as the trace is.
//!
//! ```text
//!  file ── Mapping ──► Trace ◄── draw ── Mix          Setup ──► Run ──► Summary, one for each policy
//!                        └───────────────────────────────────────▲
//! ```
//! What is driven is the controller itself ([`robust_shared::core::Core`]), as in [`super::scale`]: a fifth of the
//! machines train, the others generate, a step takes half an hour. Each machine keeps its name from fault to
//! fault, so the controller remembers which of them fail often. The invariants are held on the way
//! ([`robust_ahead::cluster::Cluster::broken`]), and what it derives from its state is derived anew after every fault and
//! every day.
mod csv;
mod fleet;
mod losses;
mod map;
mod mix;
mod read;
mod rows;
mod run;

pub use losses::Loss;
pub use map::{Format, From, Mapping, Unit};
pub use mix::{Counted as CountedCause, Mix, Offenders};
pub use read::{ReadError, read};
pub use rows::{Class, Fault, LONGEST, TooMany, Trace, UnknownClass};
pub use run::{Counted, NOTICE, Restarts, Run, Setup, Summary};

#[cfg(test)]
mod tests;
