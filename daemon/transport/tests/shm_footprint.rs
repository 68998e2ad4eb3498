//! The tests of `footprint.rs` on the road between processes of one machine.
#[path = "footprint.rs"]
mod tests;
