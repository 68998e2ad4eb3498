//! Which node holds a copy of which shard, so that a machine lost with its memory costs no committed
//! step (I-5).
//!
//! ```text
//!                                    ┌──────── order again: lost, or could not ────────┐
//!  snapshot complete ─► placed ─► ordered to hold ─► held by its holder ─► older than the last two
//!                         │                                                   steps: forgotten
//!                         └► nowhere else to hold it: as safe as it can be
//! ```
//! Every snapshot is complete in the leader's memory when its step ends: ranks of other nodes have
//! theirs copied there. So a shard is at its rank's node and at the leader from the beginning, which
//! is one and the same node for the leader's own ranks. Of several controllers the leader is no node: it may be on the
//! machine of the rank's node, and its memory is of no use to the one that leads next, so a second node is to hold it.
//! [`choose`] says which further node is to hold
//! it, and the [`Table`] follows what is held, gone and asked for.
mod choose;
mod table;
#[cfg(test)]
mod tests;

pub use choose::{Place, Spread, choose};
pub use table::{Content, Order, Safety, ShardKey, Table};
