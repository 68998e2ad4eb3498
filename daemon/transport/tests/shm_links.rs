//! The tests of `links.rs` on the road between processes of one machine.
#[path = "links.rs"]
mod tests;
