//! Which node holds a copy of which shard, so that a machine lost with its memory costs no committed
//! step (I-5).
//!
//! ```text
//!                                    ┌──────── order again: lost, or could not ────────┐
//!  snapshot complete ─► placed ─► ordered to hold ─► held by its holder ─► older than the last two
//!                         │                                                   steps: forgotten
//!                         └► nowhere else to hold it: as safe as it can be
//! ```
//! A rank's shard is in the memory of the rank's node when its step ends. [`choose`] says which further node is to
//! hold it, and the [`Table`] follows what is held, gone and asked for. The leader's own machine is a place like any
//! other where it is a node; of several controllers none is.
mod choose;
mod table;
#[cfg(test)]
mod tests;

pub use choose::{Place, Spread, choose};
pub use table::{Content, Order, Safety, ShardKey, Table};
