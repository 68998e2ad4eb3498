//! Jobs whose trainer runs a loop of its own: no trajectory is the job's, and what its programs do
//! between two steps is theirs (`trainer.command.level` below `data`).
//!
//! ```text
//!                 restored    published, where anybody pulls
//!  forming ──► restoring ──► ready ──► publishing ──► ready ──► training ──┬── StepDone: committed ──► ready
//!                                                                          └── every program ended with 0
//!                                                                              ──► the job is completed
//! ```
//! The gang is asked for the next step at once: it ends when the programs say so, if they ever do. A
//! program that keeps its state itself comes back with another than the one that was published: its
//! version is not published again by the next gang, for versions never go back (I-4); what it publishes
//! next is the next step's.
use super::{Around, Gang};
use crate::core::config::CoreConfig;
use serde::{Deserialize, Serialize};

/// What the controller must know of a trainer's own loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnLoop {
    /// Its programs tell when a step is over.
    pub commits: bool,
    /// They publish weights, and somebody pulls them.
    pub publishes: bool,
    /// Their state is kept for them. Else a restart begins where they can begin by themselves.
    pub keeps_state: bool,
}

impl Gang {
    /// Whether it is to publish the committed step's version before anything else.
    pub fn must_publish(&self, config: &CoreConfig, around: &Around<'_>) -> bool {
        let (own, due) = (config.own_loop, around.due_version());
        let publishes = own.is_none_or(|own| own.publishes);
        let of_another_state =
            own.is_some_and(|own| !own.keeps_state) && around.weights.published() >= Some(due);
        publishes && self.serves != Some(due) && !of_another_state
    }
}
