//! What the targets have in common: how they take decisions from the bytes that they are given, and who plays
//! the world around a controller.

#[cfg(feature = "core")]
mod answers;
mod bytes;
#[cfg(feature = "core")]
mod damage;
#[cfg(feature = "core")]
mod driver;
#[cfg(feature = "core")]
mod known;
#[cfg(feature = "core")]
mod requests;

pub use bytes::Bytes;
#[cfg(feature = "core")]
pub use damage::damage;
#[cfg(feature = "core")]
pub use driver::Driver;
