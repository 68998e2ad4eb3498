//! Several controllers, of which one leads.
//!
//! ```text
//!  robustd --candidate a ──► candidate.rs: follows ──► the arbiter has its key ──► lead.rs: leads, until it does not
//!                              │  tail.rs: its store is a replica of the log's       │ keeper.rs, a thread of its own:
//!                              │                                                     │ lengthens the lease, gives signs
//!                              └── the job is over: so is the candidate              └── deposed: the program begins anew
//! ```
//! [`robust_shared::ha`] decides what a candidate does; [`robust_arbiter`] is etcd; the log is [`crate::grouplog`]'s.
mod candidate;
mod keeper;
mod lead;
mod roster;
mod setting;
mod signs;
mod site;
mod standby;
mod tail;
mod takeover;

pub use candidate::{Candidate, Followed};
pub use lead::Lead;
pub use setting::{HaError, Setting};
pub use site::Advert;
pub use standby::{Candidacy, answers};
