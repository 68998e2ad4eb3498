//! RequestManager: which trajectory is whose, and which one goes to whom next.
//!
//! ```text
//!            dispatch                finish (durable)          commit of its batch
//!  pending ───────────► leased ───────────────────► finished ───────────────────► (gone)
//!     ▲                   │
//!     └───────────────────┘ returned, or its agent worker died; stored turns stay (I-2)
//! ```
//! A trajectory's batch is the step that will consume it, so each is consumed once (I-3): the table
//! only ever holds batches after the committed step.
use super::output::{Output, Severity};
use super::{Core, JobState};
use crate::ids::{Incarnation, Role, Step, TrajectoryId, WeightVersion};
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Wait before a trajectory that was given back is handed out again, per time it was given back.
const RETURN_DELAY: Duration = Duration::from_millis(200);

/// One trajectory that no step has consumed yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trajectory {
    /// Where it is.
    pub place: Place,
    /// Times it was given back unfinished.
    pub returns: u32,
    /// Agent workers that ever held it: what one of them stored is durable even if it died since.
    pub holders: Vec<Incarnation>,
}

/// Where a trajectory is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Place {
    /// To be handed out, not before this time.
    Pending(Time),
    /// Held by an agent worker.
    Leased(Incarnation),
    /// Stored with its reward.
    Finished {
        /// Its reward.
        reward: f64,
        /// The oldest weights used for it.
        oldest: WeightVersion,
    },
}

impl Default for Place {
    fn default() -> Self {
        Place::Pending(Time(0))
    }
}

/// All trajectories of the batches that may be generated now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trajectories {
    #[serde(with = "pairs")]
    all: BTreeMap<TrajectoryId, Trajectory>,
}

impl Trajectories {
    /// In flight, and finished but not consumed.
    pub fn counts(&self) -> (u64, u64) {
        let count =
            |f: fn(&Place) -> bool| self.all.values().filter(|t| f(&t.place)).count() as u64;
        (
            count(|p| matches!(p, Place::Leased(_))),
            count(|p| matches!(p, Place::Finished { .. })),
        )
    }

    /// How many an agent worker holds.
    pub fn leases(&self, agent: Incarnation) -> u32 {
        let held = self
            .all
            .values()
            .filter(|t| t.place == Place::Leased(agent))
            .count();
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    /// Those an agent worker holds.
    pub fn held_by(&self, agent: Incarnation) -> Vec<TrajectoryId> {
        let held = |(id, t): (&TrajectoryId, &Trajectory)| {
            (t.place == Place::Leased(agent)).then_some(*id)
        };
        self.all.iter().filter_map(held).collect()
    }

    /// One of them.
    pub fn get(&self, id: TrajectoryId) -> Option<&Trajectory> {
        self.all.get(&id)
    }

    /// Makes the table hold all of a batch.
    fn open(&mut self, batch: u64, prompts: u32, responses: u32) {
        for group in 0..prompts {
            for member in 0..responses {
                self.all
                    .entry(TrajectoryId {
                        batch,
                        group,
                        member,
                    })
                    .or_default();
            }
        }
    }

    /// The ids of a batch in order, if all of it is finished.
    pub fn complete(&self, batch: Step) -> Option<Vec<TrajectoryId>> {
        let of_batch = || self.all.iter().filter(|(id, _)| id.batch == batch.0);
        let finished = of_batch().all(|(_, t)| matches!(t.place, Place::Finished { .. }));
        let ids: Vec<_> = of_batch().map(|(id, _)| *id).collect();
        (finished && !ids.is_empty()).then_some(ids)
    }

    /// Nobody holds anything any more.
    pub fn return_leases(&mut self) {
        for t in self.all.values_mut() {
            if matches!(t.place, Place::Leased(_)) {
                t.place = Place::default();
            }
        }
    }

    /// Drops a consumed batch.
    pub fn consume(&mut self, batch: Step) {
        self.all.retain(|id, _| id.batch > batch.0);
    }

    /// Leases of an agent worker (or of everybody) return to pending.
    pub fn void(&mut self, agent: Option<Incarnation>) {
        for t in self.all.values_mut() {
            if let Place::Leased(holder) = t.place
                && agent.is_none_or(|a| a == holder)
            {
                t.place = Place::Pending(Time(0));
            }
        }
    }

    /// The first pending one, in order of batch and group, that may be handed out at `now`.
    fn next_pending(&self, now: Time) -> Option<TrajectoryId> {
        let due = |t: &Trajectory| matches!(t.place, Place::Pending(at) if at <= now);
        self.all.iter().find(|(_, t)| due(t)).map(|(id, _)| *id)
    }

    /// When the next one that waits after its return may be handed out.
    pub fn next_due(&self, now: Time) -> Option<Time> {
        let waits = |t: &Trajectory| match t.place {
            Place::Pending(at) if at > now => Some(at),
            _ => None,
        };
        self.all.values().filter_map(waits).min()
    }

    /// Whether any waits to be handed out.
    pub fn any_pending(&self) -> bool {
        self.all
            .values()
            .any(|t| matches!(t.place, Place::Pending(_)))
    }

    fn lease(&mut self, id: TrajectoryId, agent: Incarnation) {
        if let Some(t) = self.all.get_mut(&id) {
            t.place = Place::Leased(agent);
            if !t.holders.contains(&agent) {
                t.holders.push(agent);
            }
        }
    }
}

impl Core {
    /// Whether this agent worker holds the lease of this trajectory now. The driver asks before it
    /// stores a turn: a void lease is refused at the store's door (I-2).
    pub fn holds_lease(&self, agent: Incarnation, id: TrajectoryId) -> bool {
        let leased = self.s.trajectories.get(id).map(|t| t.place) == Some(Place::Leased(agent));
        leased && self.s.instances.life(agent).is_some()
    }

    /// Hands pending trajectories to the agent workers with the fewest, below their concurrency.
    pub(super) fn dispatch(&mut self) {
        self.open_batches();
        while let Some(id) = self.s.trajectories.next_pending(self.now) {
            let agents = self.s.instances.role(Role::Agent);
            let free = agents
                .filter(|a| a.attached() && a.condemned.is_none())
                .map(|a| {
                    (
                        self.s.trajectories.leases(a.incarnation),
                        a.id.index,
                        a.incarnation,
                    )
                })
                .filter(|(leases, ..)| *leases < self.config.agent_concurrency)
                .min();
            let Some((.., agent)) = free else { return };
            self.s.trajectories.lease(id, agent);
            self.out.push_back(Output::Dispatch {
                agent,
                trajectory: id,
            });
        }
    }

    /// An agent worker stored a finished trajectory. It counts even from one that died since: it is
    /// durable, and must not be generated again (I-2).
    pub(super) fn on_finished(
        &mut self,
        agent: Incarnation,
        id: TrajectoryId,
        reward: f64,
        oldest: WeightVersion,
    ) {
        let starting = !self.started;
        let now = self.now;
        let Some(t) = self.s.trajectories.all.get_mut(&id) else {
            return;
        };
        if matches!(t.place, Place::Finished { .. }) || !(starting || t.holders.contains(&agent)) {
            return;
        }
        let holder = match t.place {
            Place::Leased(holder) if holder != agent => Some(holder),
            _ => None,
        };
        t.place = Place::Finished { reward, oldest };
        if let Some(holder) = holder {
            self.out.push_back(Output::Revoke {
                agent: holder,
                trajectory: id,
            });
        }
        if let Some(a) = self.s.instances.life_mut(agent) {
            a.strikes.clear();
            a.last_sign = now;
        }
    }

    /// An agent worker gave a trajectory back.
    pub(super) fn on_returned(&mut self, agent: Incarnation, id: TrajectoryId, reason: &str) {
        if !self.holds_lease(agent, id) {
            return;
        }
        let now = self.now;
        let Some(t) = self.s.trajectories.all.get_mut(&id) else {
            return;
        };
        t.returns += 1;
        t.place = Place::Pending(now + RETURN_DELAY * t.returns.min(25));
        let who = self.s.instances.life(agent).map(|a| a.id);
        self.event(
            Severity::Warn,
            "returned",
            who,
            format!("trajectory {id} given back: {reason}"),
        );
    }

    /// An agent worker linked: what it holds and what the table says are brought together.
    pub(super) fn reconcile_leases(&mut self, agent: Incarnation, held: &[TrajectoryId]) {
        for id in self.s.trajectories.held_by(agent) {
            if !held.contains(&id) {
                self.out.push_back(Output::Dispatch {
                    agent,
                    trajectory: id,
                });
            }
        }
        for &id in held {
            match self.s.trajectories.get(id).map(|t| t.place) {
                Some(Place::Leased(holder)) if holder == agent => {}
                Some(Place::Pending(_)) => self.s.trajectories.lease(id, agent),
                _ => self.out.push_back(Output::Revoke {
                    agent,
                    trajectory: id,
                }),
            }
        }
    }

    /// Makes the table hold what a restored job may be told of before [`super::Input::Start`].
    pub(super) fn open_batches(&mut self) {
        if self.s.job == JobState::Running {
            let first = self.s.committed.0 + 1;
            let last = (first + self.config.ahead).min(self.config.steps);
            for batch in first..=last {
                self.s
                    .trajectories
                    .open(batch, self.config.prompts, self.config.responses);
            }
        }
    }
}

/// A map as a list of pairs: JSON has only strings for keys.
mod pairs {
    use super::{BTreeMap, Deserialize, Serialize, Trajectory, TrajectoryId};
    use serde::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(
        map: &BTreeMap<TrajectoryId, Trajectory>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        map.iter()
            .map(|(id, t)| (id.key(), t))
            .collect::<Vec<_>>()
            .serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<TrajectoryId, Trajectory>, D::Error> {
        let list = Vec::<(u64, Trajectory)>::deserialize(from)?;
        Ok(list
            .into_iter()
            .map(|(key, t)| (TrajectoryId::from_key(key), t))
            .collect())
    }
}
