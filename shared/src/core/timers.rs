//! Every instant at which something is due though nothing happens, in one ordered table.
//!
//! A timer is set no later than its owner's deadline and is not moved when that moves on, as it does
//! with every sample: when it falls too early, it is only set again. So a healthy instance costs the
//! table one entry a window, not one a sample.
use super::Core;
use super::state::JobState;
use crate::core::roster::instance::{Instance, Life};
use crate::hash::IdMap;
use crate::ids::{InstanceId, NodeId};
use crate::time::Time;
use std::collections::BTreeSet;

/// Whose deadline it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimerKey {
    /// An instance's: the first of all that may become due for it.
    Instance(InstanceId),
    /// A node's: its heartbeat.
    Node(NodeId),
}

/// The table.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    order: BTreeSet<(Time, TimerKey)>,
    set: IdMap<TimerKey, Time>,
}

impl Timers {
    /// Sets the timer of an owner whose deadline is then. One that is set to fall before it, yet
    /// after `now`, stays as it is.
    pub fn arm(&mut self, key: TimerKey, at: Option<Time>, now: Time) {
        let before = self.set.get(&key).copied();
        let early = |before: Time| before > now && at.is_none_or(|at| before <= at);
        if before == at || before.is_some_and(early) {
            return;
        }
        if let Some(before) = before {
            self.order.remove(&(before, key));
            self.set.remove(&key);
        }
        if let Some(at) = at {
            self.set.insert(key, at);
            self.order.insert((at, key));
        }
    }

    /// When a timer falls.
    pub fn get(&self, key: TimerKey) -> Option<Time> {
        self.set.get(&key).copied()
    }

    /// When the first falls.
    pub fn first(&self) -> Option<Time> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Nodes whose timers have fallen and are not taken out yet, in order.
    pub fn fallen_nodes(&self, now: Time) -> Vec<NodeId> {
        let fallen = self.order.iter().take_while(|(at, _)| *at <= now);
        let mut nodes: Vec<NodeId> = fallen
            .filter_map(|(_, key)| match key {
                TimerKey::Node(node) => Some(*node),
                TimerKey::Instance(_) => None,
            })
            .collect();
        nodes.sort_unstable();
        nodes
    }

    /// Takes out those that have fallen, in the order of their owners.
    pub fn take_fallen(&mut self, now: Time) -> Vec<TimerKey> {
        let mut fallen = Vec::new();
        while let Some((at, key)) = self.order.first().copied()
            && at <= now
        {
            self.order.pop_first();
            self.set.remove(&key);
            fallen.push(key);
        }
        fallen.sort_unstable();
        fallen
    }
}

impl Core {
    /// When [`super::Input::Timeout`] is wanted, if nothing happens before.
    pub fn next_timeout(&self) -> Option<Time> {
        if !self.started || self.s.job != JobState::Running {
            return None;
        }
        let returned = self.s.work.requests.table().next_due();
        self.timers.first().into_iter().chain(returned).min()
    }

    /// The first instant at which something is due for an instance though nothing happens.
    pub(super) fn deadline(&self, i: &Instance) -> Option<Time> {
        let learned = self.rules_due(i, true);
        self.own_deadline(i).into_iter().chain(learned).min()
    }

    /// When the first of the rules falls for an instance whose instants are learned from others, or of
    /// those whose are not.
    fn rules_due(&self, i: &Instance, learned: bool) -> Option<Time> {
        let watches = self.config.rules.on().filter_map(|r| r.watch.as_ref());
        let watches = watches.filter(|w| w.is_learned == learned);
        let sight = self.sight();
        watches.filter_map(|w| (w.due)(&sight, i)).min()
    }

    /// The first of those that follow from the instance and what touches it.
    pub(super) fn own_deadline(&self, i: &Instance) -> Option<Time> {
        let life = match i.life {
            Life::Waiting { until } => Some(until),
            // What was started has to link: a rule's matter.
            Life::Spawning { .. } | Life::Starting { .. } | Life::Unlinked { .. } => None,
            Life::None | Life::Homeless | Life::Attached => None,
        };
        let lasting = self.s.weights.of(i.id).avoids_until();
        let due = [
            life.filter(|_| i.condemned.is_none()),
            i.condemned.map(|c| c.until),
            // A verdict fell by another rule: the answer to its probe is of no matter any more.
            i.suspect.filter(|_| i.condemned.is_none()),
            lasting,
            i.leaving.map(|(_, until)| until),
            self.rules_due(i, false),
        ];
        due.into_iter().flatten().min()
    }
}
