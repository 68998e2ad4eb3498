//! What is stored, and the state that it is.
use super::super::state::State;
use super::head::{Head, Now, Plans};
use super::{
    Changes, Deaths, Durations, Entry, EntryKey, Gang, Holder, Incident, Instance, Node, Recovery,
    Value,
};
use crate::core::roster::Roster;
use crate::core::work::rewards::Rewards;
use crate::core::work::trajectories::{RequestManager, Tally, Trajectories};
use crate::ettr::{Ledger, Part, PartKey};
use crate::ids::{InstanceId, Role};
use crate::job::BATCH_LIMIT;
use crate::phase::Phase;
use std::collections::BTreeMap;

/// Entries as a disk has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entries(BTreeMap<EntryKey, Entry>);

/// Why entries are no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// One is not there.
    #[error("it has no entry {0:?}")]
    Missing(EntryKey),
    /// One is another's value, or what it is laid over is not there.
    #[error("its entry {0:?} belongs to nothing")]
    Misplaced(EntryKey),
}

impl Entries {
    /// Takes in what changed, as a disk does.
    pub fn apply(&mut self, changes: Changes) {
        if changes.whole {
            self.0.clear();
        }
        self.0.extend(changes.puts);
        for key in &changes.removed {
            self.0.remove(key);
        }
    }

    /// Adds one that was stored.
    pub fn put(&mut self, key: EntryKey, entry: Entry) {
        self.0.insert(key, entry);
    }

    /// Whether nothing was ever stored.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&EntryKey, &Entry)> {
        self.0.iter()
    }

    /// The state that they are; none where nothing was ever stored.
    pub fn state(&self) -> Result<Option<State>, EntryError> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut read = Read::default();
        for (key, Entry(value)) in &self.0 {
            read.take_in(*key, value.clone())
                .ok_or(EntryError::Misplaced(*key))?;
        }
        read.state().map(Some)
    }
}

/// What was read so far.
#[derive(Default)]
struct Read {
    now: Option<Now>,
    head: Option<Head>,
    plans: Option<Plans>,
    gang: Option<Gang>,
    nodes: Vec<Node>,
    instances: Vec<Instance>,
    holders: Vec<(InstanceId, Holder)>,
    trajectories: Trajectories,
    incidents: Vec<Incident>,
    recoveries: Vec<Recovery>,
    ledger: Vec<(PartKey, Part)>,
    rewards: Vec<(u64, f64)>,
    deaths: Deaths,
    durations: Vec<((Role, Phase), Durations)>,
}

impl Read {
    /// Takes in the next in the order of keys; none: it does not fit there.
    fn take_in(&mut self, key: EntryKey, value: Value) -> Option<()> {
        match (key, value) {
            (EntryKey::Now, Value::Now(now)) => self.now = Some(now),
            (EntryKey::Head, Value::Head(head)) => self.head = Some(*head),
            (EntryKey::Plans, Value::Plans(plans)) => self.plans = Some(*plans),
            (EntryKey::Gang, Value::Gang(gang)) => self.gang = Some(*gang),
            (EntryKey::Node(id), Value::Node(node)) => {
                // Their numbers are their places: one left out would be another's.
                (id.0 as usize == self.nodes.len()).then(|| self.nodes.push(*node))?;
            }
            (EntryKey::Beat(id), Value::Beat(at)) => {
                self.nodes.get_mut(id.0 as usize)?.beat_at = at;
            }
            (EntryKey::Instance(id), Value::Instance(i)) => {
                let before = self.instances.last().map(|i| i.id());
                let place = match before.filter(|before| before.role == id.role) {
                    Some(before) => before.index + 1,
                    None => 0,
                };
                (id == i.id() && id.index == place).then(|| self.instances.push(*i))?;
            }
            (EntryKey::Measured(id), Value::Measured(measured)) => {
                let at = self.instances.binary_search_by_key(&id, |i| i.id());
                let at = at.ok()?;
                measured.put_back(self.instances.get_mut(at)?);
            }
            (EntryKey::Batch(batch), Value::Batch(shape)) => {
                (shape.trajectories() <= BATCH_LIMIT)
                    .then(|| self.trajectories.open_as(batch, shape))?;
            }
            (EntryKey::Trajectory(id), Value::Trajectory(t)) => {
                self.trajectories.get(id)?;
                self.trajectories.put_back(id, t);
            }
            (EntryKey::Incident(id), Value::Incident(incident)) => {
                (id == incident.id).then(|| self.incidents.push(*incident))?;
            }
            (EntryKey::Recovery(id), Value::Recovery(recovery)) => {
                (id == recovery.incident).then(|| self.recoveries.push(recovery))?;
            }
            (EntryKey::Ledger(key), Value::Ledger(part)) => self.ledger.push((key, part)),
            (EntryKey::Reward(number), Value::Reward(reward)) => {
                self.rewards.push((number, reward));
            }
            (EntryKey::Deaths, Value::Deaths(deaths)) => self.deaths = *deaths,
            (EntryKey::Durations(role, phase), Value::Durations(seen)) => {
                self.durations.push(((role, phase), seen));
            }
            (EntryKey::Holder(id), Value::Holder(holder)) => {
                // Their numbers are places in a list, too, and instances were read before.
                self.instances.binary_search_by_key(&id, |i| i.id()).ok()?;
                self.holders.push((id, *holder));
            }
            _ => return None,
        }
        Some(())
    }

    fn state(self) -> Result<State, EntryError> {
        let missing = EntryError::Missing;
        let ledger = PartKey::Sums;
        let mut state = State {
            gang: self.gang.ok_or(missing(EntryKey::Gang))?,
            roster: Roster::of(self.nodes, self.instances),
            ledger: Ledger::from_parts(self.ledger).ok_or(missing(EntryKey::Ledger(ledger)))?,
            durations: self.durations.into_iter().collect(),
            ..State::empty()
        };
        let (now, head) = (missing(EntryKey::Now), missing(EntryKey::Head));
        let mut tally = Tally::default();
        self.now.ok_or(now)?.put_back(&mut state, &mut tally);
        let head = self.head.ok_or(head)?;
        state.recover = head.recover(self.incidents, self.recoveries, self.deaths);
        head.put_back(&mut state, &mut tally, self.holders);
        let plans = missing(EntryKey::Plans);
        self.plans.ok_or(plans)?.put_back(&mut state);
        state.work.requests = RequestManager::of(self.trajectories, tally);
        state.work.rewards = self.rewards.into_iter().collect::<Rewards>();
        Ok(state)
    }
}
