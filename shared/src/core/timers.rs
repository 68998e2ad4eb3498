//! Every instant at which something is due though nothing happens, in one ordered table.
//!
//! A timer is set no later than its owner's deadline and is not moved when that moves on, as it does
//! with every sample: when it falls too early, it is only set again. So a healthy instance costs the
//! table one entry a window, not one a sample.
use super::Core;
use super::state::JobState;
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
        let first = self.timers.first().map(|at| at.max(self.hears_until));
        first.into_iter().chain(returned).min()
    }
}
