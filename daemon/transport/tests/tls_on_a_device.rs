//! The tests of `on_a_device.rs` on the road between machines.
#[path = "on_a_device.rs"]
mod tests;
