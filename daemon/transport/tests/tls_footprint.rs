//! The tests of `footprint.rs` on the road between machines.
#[path = "footprint.rs"]
mod tests;
