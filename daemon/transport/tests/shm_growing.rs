//! The tests of `growing.rs` on the road between processes of one machine.
#[path = "growing.rs"]
mod tests;
