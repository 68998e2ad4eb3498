//! Weights and gradients between processes over UCX.
mod buffer;
mod command;
mod config;
mod engine;
mod error;
mod inbox;
mod key;
mod mapping;
mod stats;
mod transport;

pub use buffer::Buffer;
pub use config::Config;
pub use error::{BufferError, FetchError, KeyError, TransportError};
pub use key::{Part, RegionKey};
pub use stats::Stats;
pub use transport::{Exposed, MAX_MESSAGE_BYTES, Transport};
