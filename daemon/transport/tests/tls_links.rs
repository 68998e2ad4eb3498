//! The tests of `links.rs` on the road between machines.
#[path = "links.rs"]
mod tests;
