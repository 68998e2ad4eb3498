//! What the targets have in common: how they take decisions from the bytes that they are given.

mod bytes;

pub use bytes::Bytes;
