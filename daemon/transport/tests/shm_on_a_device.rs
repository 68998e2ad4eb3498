//! The tests of `on_a_device.rs` on the road between processes of one machine.
#[path = "on_a_device.rs"]
mod tests;
