//! What leader and node make of each other when one of them does not keep to the protocol: a typed
//! refusal, no panic, and everybody else goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#[path = "protocol/bounds.rs"]
mod bounds;
#[path = "protocol/flood.rs"]
mod flood;
#[path = "protocol/joining.rs"]
mod joining;
#[path = "protocol/leader.rs"]
mod leader;
#[path = "protocol/node.rs"]
mod node;
#[path = "protocol/renewed.rs"]
mod renewed;
#[path = "protocol/rights.rs"]
mod rights;
#[path = "protocol/shards.rs"]
mod shards;
#[path = "protocol/strangers.rs"]
mod strangers;
