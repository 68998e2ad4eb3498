//! A rule's finding.
use super::Rule;
use crate::core::FaultKind;
use crate::core::recover::cause::Cause;
use crate::ids::{IncidentId, InstanceId};
use crate::time::Time;

/// A rule's finding about one instance: it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Who failed.
    pub who: InstanceId,
    /// Which rule says so.
    pub rule: &'static Rule,
    /// Whose budget it counts against.
    pub kind: FaultKind,
    /// What was seen.
    pub reason: String,
    /// What it came of; none where it came from outside, or nobody knows.
    pub cause: Option<Cause>,
    /// Its words, where it ended in start-up with an error.
    pub startup_error: Option<String>,
    /// That it attached before proves nothing of its role: no instance of it ever served.
    pub never_served: bool,
    /// Its process is gone already.
    pub ended: bool,
    /// When it ended, as the operating system said.
    pub exited: Option<Time>,
    /// What it ended of is known, and none of its requests.
    pub explained: bool,
    /// It hangs: stacks are worth taking before it is killed.
    pub hangs: bool,
    /// The incident that it is a consequence of: it counts against no budget.
    pub under: Option<IncidentId>,
}

impl Verdict {
    /// A living process that failed by this rule.
    pub fn new(who: InstanceId, rule: &'static Rule, reason: impl Into<String>) -> Self {
        Self {
            who,
            rule,
            kind: rule.kind.unwrap_or(FaultKind::Exit),
            reason: reason.into(),
            cause: None,
            startup_error: None,
            never_served: false,
            ended: false,
            exited: None,
            explained: false,
            hangs: false,
            under: None,
        }
    }

    /// It follows from what another incident tells of.
    pub fn under(self, first: Option<IncidentId>) -> Self {
        Self {
            under: first,
            ..self
        }
    }

    /// Its process is gone already.
    pub fn ended(self) -> Self {
        Self {
            ended: true,
            ..self
        }
    }

    /// What it came of.
    pub fn came_of(self, cause: Option<Cause>) -> Self {
        Self { cause, ..self }
    }

    /// It hangs.
    pub fn hanging(self) -> Self {
        Self {
            hangs: true,
            ..self
        }
    }
}
