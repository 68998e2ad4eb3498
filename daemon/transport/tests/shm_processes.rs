//! The tests of `processes.rs` on the road between processes of one machine.
#[path = "processes.rs"]
mod tests;
