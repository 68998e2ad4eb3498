//! Recoveries under way, each under the number of its incident.
use crate::changed::Changed;
use crate::ids::{IncidentId, InstanceId, Role};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A recovery under way and whom it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Its incident.
    pub incident: IncidentId,
    /// Who failed.
    pub who: InstanceId,
    /// What is restarted.
    pub scope: Scope,
}

/// What a recovery restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// The instance that failed.
    Instance,
    /// All ranks of the trainer.
    Gang,
    /// Everything.
    Task,
}

impl Recovery {
    /// Whether the instance is restarted by it.
    pub fn covers(&self, id: InstanceId) -> bool {
        match self.scope {
            Scope::Instance => self.who == id,
            Scope::Gang => id.role == Role::Trainer,
            Scope::Task => true,
        }
    }
}

/// Recoveries under way, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recoveries {
    all: Vec<Recovery>,
    changed: Changed<IncidentId>,
}

impl Recoveries {
    /// All of them, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Recovery> {
        self.all.iter()
    }

    /// All of them as they are now, for whoever ends some on the way.
    pub fn to_vec(&self) -> Vec<Recovery> {
        self.all.clone()
    }

    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The one of an incident.
    pub fn get(&self, incident: IncidentId) -> Option<&Recovery> {
        self.all.iter().find(|r| r.incident == incident)
    }

    /// One more, of the newest incident.
    pub fn begin(&mut self, recovery: Recovery) {
        self.changed.note(recovery.incident);
        self.all.push(recovery);
    }

    /// The one of an incident is over.
    pub fn end(&mut self, incident: IncidentId) {
        self.changed.note(incident);
        self.all.retain(|r| r.incident != incident);
    }

    /// A restart of everything takes all of them with it.
    pub fn widen(&mut self) {
        let narrow = |r: &&mut Recovery| r.scope != Scope::Task;
        for recovery in self.all.iter_mut().filter(narrow) {
            recovery.scope = Scope::Task;
            self.changed.note(recovery.incident);
        }
    }

    /// Those whose entries changed since this was last asked; none: all of them.
    pub(in crate::core) fn take_changed(&mut self) -> Option<Vec<IncidentId>> {
        self.changed.take()
    }
}

impl FromIterator<Recovery> for Recoveries {
    fn from_iter<I: IntoIterator<Item = Recovery>>(all: I) -> Self {
        Self {
            all: all.into_iter().collect(),
            changed: Changed::default(),
        }
    }
}

impl Serialize for Recoveries {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.all.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Recoveries {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Vec::<Recovery>::deserialize(from)?.into_iter().collect())
    }
}
