//! The tests of `impair.rs` on the road between processes of one machine.
#[path = "impair.rs"]
mod tests;
