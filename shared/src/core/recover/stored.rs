//! What is written down of it.
use super::Recover;
use super::deaths::Deaths;
use super::incident::Incident;
use super::recoveries::Recovery;
use crate::ids::IncidentId;

/// The entries of a table that changed, each as it is now; none: it is gone.
type Taken<T> = Vec<(IncidentId, Option<T>)>;

impl Recover {
    /// As it was written down.
    pub fn put_back(
        incidents: Vec<Incident>,
        recoveries: Vec<Recovery>,
        deaths: Deaths,
        (next_incident, task_restarts): (IncidentId, u32),
    ) -> Self {
        Self {
            next_incident,
            incidents: incidents.into_iter().collect(),
            recoveries: recoveries.into_iter().collect(),
            deaths,
            task_restarts,
            due: false,
        }
    }

    /// The number of the next incident.
    pub fn next_incident(&self) -> IncidentId {
        self.next_incident
    }

    /// Incidents that changed since this was last asked; `whole`: all of them.
    pub fn take_incidents(&mut self, whole: bool) -> Taken<Incident> {
        let changed = match self.incidents.take_changed() {
            Some(changed) if !whole => changed,
            _ => self.incidents.iter().map(|i| i.id).collect(),
        };
        let now = |id| (id, self.incidents.get(id).cloned());
        changed.into_iter().map(now).collect()
    }

    /// The same of recoveries.
    pub fn take_recoveries(&mut self, whole: bool) -> Taken<Recovery> {
        let changed = match self.recoveries.take_changed() {
            Some(changed) if !whole => changed,
            _ => self.recoveries.iter().map(|r| r.incident).collect(),
        };
        let now = |id| (id, self.recoveries.get(id).copied());
        changed.into_iter().map(now).collect()
    }
}
