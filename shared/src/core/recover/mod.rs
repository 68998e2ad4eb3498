//! From a verdict to what is done about it: the decision, the restarts, and the incident that tells of them.
//!
//! ```text
//!  verdict ──► open: incident and recovery ──► marked stage by stage ──► advance: useful work goes on ──► over
//!                │ a hang: testimony of all who may be part of it ──► conclude: its root is named
//! ```
//! What failed, what is restarted for it and which deaths nobody explained is owned here and changed by
//! nobody else ([`Recover`]); it looks at the others through [`Around`]. Deciding is a pure function
//! (`restart::decide`).
mod around;
pub(in crate::core) mod budget;
pub(in crate::core) mod cause;
pub(in crate::core) mod deaths;
mod evidence;
pub(in crate::core) mod incident;
mod incidents;
mod progress;
pub(in crate::core) mod recoveries;
pub(in crate::core) mod restart;
pub(in crate::core) mod root;
mod stored;
pub(in crate::core) mod testimony;
mod witnesses;

#[cfg(test)]
mod tests;

pub use around::Around;
pub use incidents::{Opened, struck};
pub use recoveries::{Recovery, Scope};
pub use witnesses::Witnesses;

use crate::core::config::CoreConfig;
use crate::core::mutation::Mutation;
use crate::ids::IncidentId;
use deaths::Deaths;
use incident::Incidents;
use recoveries::Recoveries;
use serde::{Deserialize, Serialize};

/// What failed, and what is done about it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recover {
    next_incident: IncidentId,
    /// The last incidents, open ones included.
    incidents: Incidents,
    /// Recoveries under way.
    recoveries: Recoveries,
    /// Engines that died with requests in flight, and nobody is to blame yet.
    #[serde(default)]
    pub deaths: Deaths,
    /// Task restarts since the last committed step.
    task_restarts: u32,
    /// Something changed that recoveries depend on.
    #[serde(skip)]
    due: bool,
}

/// Nothing failed yet.
impl Default for Recover {
    fn default() -> Self {
        Self {
            next_incident: IncidentId(1),
            incidents: Incidents::default(),
            recoveries: Recoveries::default(),
            deaths: Deaths::default(),
            task_restarts: 0,
            due: false,
        }
    }
}

/// Equal are those that remember the same.
impl PartialEq for Recover {
    fn eq(&self, other: &Self) -> bool {
        (self.next_incident, self.task_restarts) == (other.next_incident, other.task_restarts)
            && (&self.incidents, &self.recoveries) == (&other.incidents, &other.recoveries)
            && self.deaths == other.deaths
    }
}

impl Recover {
    /// The last incidents, open ones included.
    pub fn incidents(&self) -> &Incidents {
        &self.incidents
    }

    /// Recoveries under way.
    pub fn recoveries(&self) -> &Recoveries {
        &self.recoveries
    }

    /// Task restarts since the last useful work of the gang.
    pub fn task_restarts(&self) -> u32 {
        self.task_restarts
    }

    /// A task restart is decided: it counts then, not when it is done, for another may be decided before
    /// it is (I-7).
    pub fn count_task_restart(&mut self, config: &CoreConfig) {
        self.task_restarts += u32::from(!config.mutant(Mutation::UncountedTask));
    }

    /// The gang did useful work.
    pub fn gang_succeeded(&mut self) {
        self.task_restarts = 0;
    }

    /// A job that was stopped goes on: an operator looked at it in between, and nothing of it runs.
    pub fn begin_anew(&mut self) {
        self.recoveries = Recoveries::default();
        self.task_restarts = 0;
    }

    /// Something changed that recoveries depend on, and that nobody else says.
    pub fn look_again(&mut self) {
        self.due = true;
    }
}
