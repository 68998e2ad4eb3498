//! What the store can do on this machine, for `robustctl bench store`.
pub mod appends;
