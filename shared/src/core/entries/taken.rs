//! Taking what changed.
use super::super::state::State;
use super::head::{Head, Now, Plans};
use super::{Changes, EntryKey, Value};
use crate::changed::Layers;
use crate::core::gang::Gang;
use crate::core::roster::instance::measured::Measured;
use crate::ids::{InstanceId, NodeId, Role, TrajectoryId};
use crate::phase::Phase;

/// What has no table as it was last taken; nothing before the first time. No part of what is remembered:
/// any two are equal.
#[derive(Clone, Debug, Default)]
pub struct LastTaken(Option<Box<(Head, Plans, Gang)>>);

impl PartialEq for LastTaken {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// All of a table.
fn all<K>(keys: impl Iterator<Item = K>) -> Layers<K> {
    Layers {
        whole: keys.collect(),
        bare: Vec::new(),
        over: Vec::new(),
    }
}

impl State {
    /// What changed since this was last asked, to be written down with a record; all of it the first time.
    pub(in crate::core) fn take_changes(&mut self) -> Changes {
        let mut changes = Changes {
            whole: self.last_taken.0.is_none(),
            ..Changes::default()
        };
        self.take_head(&mut changes);
        self.take_nodes(&mut changes);
        self.take_instances(&mut changes);
        for (id, holder) in self.weights.take_changed(changes.whole) {
            let value = holder.map(|holder| Value::Holder(holder.into()));
            changes.note(EntryKey::Holder(id), value);
        }
        self.take_trajectories(&mut changes);
        self.take_incidents(&mut changes);
        for (key, part) in self.ledger.take_parts(changes.whole) {
            changes.note(EntryKey::Ledger(key), part.map(Value::Ledger));
        }
        self.take_figures(&mut changes);
        changes
    }

    fn take_head(&mut self, changes: &mut Changes) {
        changes.note(EntryKey::Now, Some(Value::Now(Now::of(self))));
        let head = Head::of(self);
        let last = match self.last_taken.0.take() {
            Some(mut last) => {
                if last.0 != head {
                    changes.note(EntryKey::Head, Some(Value::Head(head.clone().into())));
                    last.0 = head;
                }
                if !last.1.are_of(self) {
                    last.1 = Plans::of(self);
                    let plans = last.1.clone().into();
                    changes.note(EntryKey::Plans, Some(Value::Plans(plans)));
                }
                if last.2 != self.gang {
                    last.2 = self.gang.clone();
                    let gang = last.2.clone().into();
                    changes.note(EntryKey::Gang, Some(Value::Gang(gang)));
                }
                last
            }
            None => {
                let all = (head, Plans::of(self), self.gang.clone());
                let (head, plans, gang) = all.clone();
                changes.note(EntryKey::Head, Some(Value::Head(head.into())));
                changes.note(EntryKey::Plans, Some(Value::Plans(plans.into())));
                changes.note(EntryKey::Gang, Some(Value::Gang(gang.into())));
                all.into()
            }
        };
        self.last_taken = LastTaken(Some(last));
    }

    fn take_nodes(&mut self, changes: &mut Changes) {
        let taken = self.roster.take_changed_nodes(changes.whole);
        let changed = taken.unwrap_or_else(|| all(self.roster.nodes().ids()));
        let node = |id: NodeId| self.roster.nodes().get(id);
        for id in changed.whole {
            let value = node(id).map(|n| Value::Node(n.clone().into()));
            changes.note(EntryKey::Node(id), value);
        }
        for id in changed.bare {
            changes.note(EntryKey::Beat(id), None);
        }
        for id in changed.over {
            let value = node(id).map(|n| Value::Beat(n.beat_at));
            changes.note(EntryKey::Beat(id), value);
        }
    }

    fn take_instances(&mut self, changes: &mut Changes) {
        let taken = self.roster.take_changed_instances(changes.whole);
        let changed = taken.unwrap_or_else(|| all(self.roster.instances().iter().map(|i| i.id())));
        let instance = |id: InstanceId| self.roster.instances().get(id);
        for id in changed.whole {
            let value = instance(id).map(|i| Value::Instance(i.clone().into()));
            changes.note(EntryKey::Instance(id), value);
        }
        for id in changed.bare {
            changes.note(EntryKey::Measured(id), None);
        }
        for id in changed.over {
            let value = instance(id).map(|i| Value::Measured(Measured::of(i).into()));
            changes.note(EntryKey::Measured(id), value);
        }
    }

    fn take_trajectories(&mut self, changes: &mut Changes) {
        let table = self.work.requests.changes();
        let (batches, changed) = match table.take_changed() {
            Some(both) if !changes.whole => both,
            _ => {
                let begun = table.begun().map(|(id, _)| id).collect();
                (table.open_batches().collect(), begun)
            }
        };
        for batch in batches {
            let shape = table.shape(batch).map(Value::Batch);
            changes.note(EntryKey::Batch(batch), shape);
        }
        let trajectory = |id: TrajectoryId| table.get(id).cloned();
        for id in changed {
            let value = trajectory(id).map(Value::Trajectory);
            changes.note(EntryKey::Trajectory(id), value);
        }
    }

    fn take_incidents(&mut self, changes: &mut Changes) {
        for (id, incident) in self.recover.take_incidents(changes.whole) {
            let value = incident.map(|i| Value::Incident(i.into()));
            changes.note(EntryKey::Incident(id), value);
        }
        for (id, recovery) in self.recover.take_recoveries(changes.whole) {
            changes.note(EntryKey::Recovery(id), recovery.map(Value::Recovery));
        }
    }

    fn take_figures(&mut self, changes: &mut Changes) {
        let rewards: Vec<u64> = match self.work.rewards.take_changed() {
            Some(changed) if !changes.whole => changed,
            _ => self.work.rewards.numbers().collect(),
        };
        for number in rewards {
            let value = self.work.rewards.get(number).map(Value::Reward);
            changes.note(EntryKey::Reward(number), value);
        }
        if self.recover.deaths.take_changed() || changes.whole {
            let deaths = self.recover.deaths.clone().into();
            changes.note(EntryKey::Deaths, Some(Value::Deaths(deaths)));
        }
        let durations: Vec<(Role, Phase)> = match self.durations.take_changed() {
            Some(changed) if !changes.whole => changed,
            _ => self.durations.iter().map(|(key, _)| key).collect(),
        };
        for (role, phase) in durations {
            let seen = self.durations.get(role, phase).cloned();
            let value = seen.map(Value::Durations);
            changes.note(EntryKey::Durations(role, phase), value);
        }
    }
}
