//! The work: trajectories in batches, who generates which of them, and which engine serves their requests.
//!
//! Two machines and a list, none of which knows an instance: the roster says which incarnations take work
//! ([`Takes`]), and hears whose work changed ([`Work::next_changed`]).
mod idlest;
pub(in crate::core) mod rewards;
pub(in crate::core) mod routes;
pub(in crate::core) mod trajectories;

use crate::core::effects::Cx;
use crate::ids::{Incarnation, InstanceId, WeightVersion};
use rewards::Rewards;
use routes::RolloutManager;
use serde::{Deserialize, Serialize};
use trajectories::RequestManager;

/// The work. Equal are those that remember the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Which trajectory is whose.
    #[serde(flatten)]
    pub requests: RequestManager,
    /// Which engine serves which request. Not persisted: callers ask again when their connection breaks.
    #[serde(skip)]
    pub rollouts: RolloutManager,
    /// What the steps brought.
    pub rewards: Rewards,
}

/// What an incarnation may be given more of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// An agent worker: trajectories.
    Trajectories,
    /// An engine that has this version: requests.
    Requests(WeightVersion),
}

impl Work {
    /// An incarnation takes work, other work than before, or none any more.
    pub fn offer(&mut self, id: InstanceId, life: Incarnation, takes: Option<Takes>) {
        let (trajectories, requests) = match takes {
            Some(Takes::Trajectories) => (true, None),
            Some(Takes::Requests(version)) => (false, Some(version)),
            None => (false, None),
        };
        self.requests.offer(id, life, trajectories);
        self.rollouts.offer(id, life, requests);
    }

    /// An agent worker is gone: its trajectories are anybody's, and nobody waits for its requests.
    pub fn agent_is_gone(&mut self, cx: &mut Cx<'_>, agent: Incarnation) {
        self.rollouts.drop_agent(cx, agent);
        self.requests.void(cx, agent);
    }

    /// One of those who hold or serve another number than before.
    pub fn next_changed(&mut self) -> Option<Incarnation> {
        let agent = self.requests.next_changed();
        agent.or_else(|| self.rollouts.next_changed())
    }

    /// What the roster said is forgotten, and is to be said again.
    pub fn forget_offers(&mut self) {
        self.requests.forget_offers();
        self.rollouts.forget_offers();
    }

    /// What follows from what is remembered, as it is derived from a full scan, or why not.
    pub fn check(&self) -> Result<(), String> {
        self.requests.check()?;
        self.rollouts.check()
    }

    /// Whether the other was offered the same.
    pub fn has_same_offers(&self, other: &Self) -> bool {
        self.requests.has_same_offers(&other.requests)
            && self.rollouts.has_same_offers(&other.rollouts)
    }
}
