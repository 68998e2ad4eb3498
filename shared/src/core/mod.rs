//! The controller as a pure state machine. See [`Input`] and [`Output`] for its two edges.
mod incident;
mod input;
mod output;

pub use incident::*;
pub use input::*;
pub use output::*;
