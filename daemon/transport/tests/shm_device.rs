//! The tests of `device.rs` on the road between processes of one machine.
#[path = "device.rs"]
mod tests;
