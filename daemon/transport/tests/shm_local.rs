//! The tests of `local.rs` on the road between processes of one machine.
#[path = "local.rs"]
mod tests;
