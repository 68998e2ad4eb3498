//! Agent unable: an agent worker that gives back one trajectory after the other and ends none. It lives,
//! it moves, and its tool or environment is broken: nothing that the model did is to blame, so none of
//! them is a sample, and each goes on elsewhere from what is stored of it.
//!
//! ```text
//!  given back ──► pending again, after a wait that grows ──► another worker, or this one again
//!      │
//!      └─ `times` in a row and for `lasting_s`, none finished between ──► restart the worker
//!                                                         again and again ──► its budget (I-7)
//! ```
//! A machine that has no memory for a moment gives back many at once: the time is what tells it from
//! a tool that is broken for good. Then restarts do not help either, and the budget of their kind says
//! what comes next: the task, and in the end the job fails with this verdict instead of going round for
//! ever.
use super::{ByRole, Rule, Setting, Verdict, settings};
use crate::core::effects::Cx;
use crate::core::roster::instance::Instance;
use crate::core::{FaultKind, Mutation};
use crate::ids::Role;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// An agent worker that ends nothing.
pub const RULE: Rule = Rule {
    name: "agent unable",
    roles: &[Role::Agent],
    phases: &[],
    signal: "it gave back `times` trajectories in a row for longer than `lasting_s`, and finished none \
             between",
    action: "restart it; what it gives back is no sample, and goes on elsewhere",
    kind: Some(FaultKind::Exception),
    event: None,
    watch: None,
};

settings! {
    /// What a job file may set of it.
    pub struct AgentUnable {
        /// Trajectories given back in a row.
        pub times: ByRole<u32> = Setting::number("times", 8.0, 1.0, 1_000_000.0),
        /// For how long they must come back.
        pub lasting: ByRole<Duration> = Setting::number("lasting_s", 30.0, 0.0, super::LONGEST_S),
    }
}

/// Trajectories given back by one life of an agent worker, none finished between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenBack {
    /// How many.
    pub times: u32,
    /// When the first of them was.
    pub since: Time,
}

/// An agent worker gave a trajectory back. If that is all it does, it is the worker's fault.
pub(in crate::core) fn gives_back(
    cx: &Cx<'_>,
    agent: &mut Instance,
    reason: &str,
) -> Option<Verdict> {
    let row = agent.gives_back(cx.now);
    let set = &cx.config.rules.agent_unable;
    let lasts = cx.now.since(row.since) >= set.lasting.of(Role::Agent);
    if row.times < set.times.of(Role::Agent)
        || !lasts
        || agent.condemned().is_some()
        || cx.config.mutant(Mutation::ForgetReturned)
    {
        return None;
    }
    let reason = format!(
        "gave back {} trajectories in a row and finished none: {reason}",
        row.times
    );
    Some(Verdict::new(agent.id(), &RULE, reason))
}
