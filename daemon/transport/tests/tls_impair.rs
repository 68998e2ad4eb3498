//! The tests of `impair.rs` on the road between machines.
#[path = "impair.rs"]
mod tests;
