//! The services of a job, decided: when each is started, asked, started anew or given up, and whether
//! the job has to wait for them. No I/O and no clock, as everywhere in this crate.
//!
//! ```text
//!             those before it            it answers             a probe fails
//!             are up                  ┌──────────────► up ◄───────────────────► suspect
//!  waiting ──────────────► starting ──┤                │ it ended                 │ the threshold's
//!                          ▲    ▲     │ not in time,   │                          ▼ is reached
//!                          │    │     │ or it ended    │            Kill ──────► ending
//!                          │    │     └────────────────┼──────────────┘           │ it ended
//!                          │    │                      ▼                          │
//!                          │    └──── wait over ── restarting ◄───────────────────┘
//!                          │                           │ the budget of `[restart]` is spent
//!                          │                           ▼
//!                          └─ needed = "wait" ◄────────┴──► down:  "fail" fails the job,
//!                             ever longer waits                    "degrade" goes on without
//! ```
//! Happy path: [`Services::handle`] takes [`Event::Begin`]; every instance whose predecessors are up is
//! started ([`Effect::Start`]), asked until it answers ([`Effect::Probe`]), and is *up*. When all that the
//! job needs are, [`Effect::Release`] lets it begin; [`Event::RolesStarted`] then starts those services
//! that have the rollouts' addresses.
//!
//! Every start is a life with a number that no other had; what is heard of an older life is dropped.
//!
//! # Rules
//! - **V-1** No life is started twice, and an instance has one life at a time: the next starts only when
//!   the end of the one before it was seen.
//! - **V-2** Restarts are counted against `[restart]`'s budget of their kind (`exit`, `start`, `health`);
//!   beyond it there are none, but for `needed = "wait"`, where each further one waits twice as long.
//! - **V-3** The job begins only when every service that it needs is up, and is held again for as long
//!   as one with `needed = "wait"` is not.
mod instance;
mod machine;
mod plan;
#[cfg(test)]
mod tests;

pub use machine::{ServiceView, Services};
pub use plan::{Asked, Plan, Spec};

use crate::core::Severity;
use crate::ids::Incarnation;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// One process of a service, whatever its life.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ServiceId {
    /// The service's name.
    pub name: String,
    /// Which of its processes, from 0.
    pub index: u32,
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "service.{}.{}", self.name, self.index)
    }
}

/// What happened to the services. Given to [`Services::handle`] with the time it happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An earlier daemon's life of an instance is there; told before [`Event::Begin`].
    Adopted {
        /// Whose.
        id: ServiceId,
        /// Its number.
        life: Incarnation,
        /// Whether it had answered by then.
        up: bool,
    },
    /// The services are wanted.
    Begin,
    /// The job's roles were started.
    RolesStarted,
    /// A life could not be started.
    NotStarted {
        /// Which.
        life: Incarnation,
        /// The operating system's reason.
        reason: String,
    },
    /// A life ended, and nothing of it is left.
    Exited {
        /// Which.
        life: Incarnation,
        /// How, as a part of a sentence.
        how: String,
    },
    /// A life was asked.
    Probed {
        /// Which.
        life: Incarnation,
        /// Whether it answered well and in time.
        ok: bool,
    },
    /// The time of [`Services::next_timeout`] has come.
    Timeout,
    /// The job is over: nothing is started any more.
    End,
}

/// What is to be done. Fetched with [`Services::poll_effect`] until there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start a life.
    Start {
        /// Whose.
        id: ServiceId,
        /// Its number.
        life: Incarnation,
    },
    /// Kill a life at once; its end is an event.
    Kill {
        /// Which.
        life: Incarnation,
        /// Why.
        reason: String,
    },
    /// Ask a life, and tell the answer.
    Probe {
        /// Whose.
        id: ServiceId,
        /// Which.
        life: Incarnation,
        /// The route that must answer 200; none: its port must accept a connection.
        path: Option<String>,
        /// How long it may take.
        timeout: Duration,
    },
    /// Say something to operators.
    Say {
        /// How bad it is.
        severity: Severity,
        /// The event's kind: `service` or `service-restart`.
        kind: &'static str,
        /// A sentence.
        text: String,
    },
    /// The job fails.
    Fail {
        /// Why.
        reason: String,
    },
    /// The job is to wait.
    Hold {
        /// For whom.
        reason: String,
    },
    /// The job need not wait any more.
    Release,
}
