//! The tests of `local.rs` on the road between machines.
#[path = "local.rs"]
mod tests;
