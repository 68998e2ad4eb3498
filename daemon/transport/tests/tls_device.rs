//! The tests of `device.rs` on the road between machines.
#[path = "device.rs"]
mod tests;
