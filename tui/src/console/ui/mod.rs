//! What screens are drawn with.
mod drawn;
pub mod grid;
pub mod lane;
pub mod look;
mod parts;
pub mod plot;
pub mod scroll;

pub use drawn::{Drawn, Spot};
pub use parts::{WIDE, below, line, put, put_ends, section, split, wrapped};
