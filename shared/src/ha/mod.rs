//! Which of several controllers leads: what a candidate does about what it sees of the arbiter.
//!
//! ```text
//!              nobody leads                         the arbiter took it
//!  following ───────────────► asked to lead ─────────────────────────────► leads (its epoch)
//!      ▲  ▲                        │ somebody else was first                   │ its lease was not lengthened in time,
//!      │  └────────────────────────┘                                           │ or is over
//!      │ the leader's signs stop while the arbiter answers this one:           ▼
//!      └── its lease is taken away                                          ended: it says and does nothing more
//! ```
//! A candidate that lacks something without which it could not go on ([`Event::Ready`]) neither asks nor takes a lease away: the
//! place stays free until somebody has everything.
//!
//! The arbiter (etcd) decides, by one key that is bound to a lease. No clock is believed between machines: that a leader
//! is silent is only ever a reason to take its lease away, which the arbiter does for all at once, and what a leader
//! writes counts only while the key is its own (CLUSTER.md 1.3-4). Two leaders can at no time both acknowledge.
//!
//! A leader gives signs of life to the arbiter, and a follower sees them there. So a leader that reaches its nodes and not
//! the arbiter is replaced, as it can acknowledge nothing; and a follower that does not reach the arbiter, or finds it
//! answering nobody, takes nothing away from anybody.
mod bug;
mod election;
#[cfg(test)]
mod tests;
mod watchdog;

pub use bug::Bug;
pub use election::{Act, Election, Event, Leader, Timing};
pub use watchdog::{Place, place};
