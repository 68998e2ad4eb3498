//! What the HTTP servers of a job's engines have in common: who may ask them, and what a caller can cost.
//!
//! ```text
//!  accept ──► among the callers without a key ──► Host ──► key ──► JSON ──► the server's own routes
//!               │ too many: the oldest of the      │ 403    │ 401    │ 415
//!               │ address that has most is closed  └────────┴────────┴─► a word, and no further
//! ```
//! The built-in rollout and the shim before an engine of the user's both stand behind this; robustd counts those
//! who call `--listen`, `--router` and `--metrics` by the same [`Callers`]. Whoever shows no
//! key may ask `/health` and nothing else; he costs a connection for [`PATIENCE`], and cannot keep out whoever
//! has one. A page in a browser of this machine gets nothing, key or not: its requests name a host, and have
//! bodies of a type, that are refused.

mod callers;
mod door;
mod serve;

pub use callers::{Caller, Callers, Closed, MOST_CALLERS, MOST_UNPROVEN, PATIENCE};
pub use door::{Door, Keyless};
pub use serve::{IDLE, Wire, serve, serve_until};
