//! The tests of `processes.rs` on the road between machines.
#[path = "processes.rs"]
mod tests;
