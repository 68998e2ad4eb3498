//! The tests of `growing.rs` on the road between machines.
#[path = "growing.rs"]
mod tests;
