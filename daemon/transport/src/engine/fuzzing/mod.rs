//! What fuzz targets see of the transport beyond its interface. Built with `--cfg fuzzing` only.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod messages;
mod network;
mod pair;

pub use messages::{frames, messages};
pub use pair::{Pair, SIZE};
