//! RequestManager: which trajectory is whose, and which one goes to whom next.
//!
//! ```text
//!            dispatch                finish (durable)          commit of its batch
//!  pending ───────────► leased ───────────────────► finished ───────────────────► (gone)
//!     ▲                   │
//!     └───────────────────┘ given back (its tool or environment failed: no sample), or its agent
//!                           worker died; what is stored stays (I-2)
//!
//!  pending, leased ── took engines along (`poison`) ──► set aside ── commit of its batch ──► (gone)
//! ```
//! A trajectory's batch is the step that will consume it, so each is consumed once (I-3): the table
//! only ever holds batches after the committed step.
mod stale;
mod table;

pub use stale::staleness;
pub use table::{Place, Shape, Trajectories, Trajectory};

use crate::core::config::Mode;
use crate::core::detect::agent_unable::GivenBack;
use crate::core::input::ReturnedBy;
use crate::core::output::{Output, Record, Severity};
use crate::core::roster::instances::Current;
use crate::core::{Core, JobState, Mutation};
use crate::ids::{Incarnation, Role, TrajectoryId, WeightVersion};
use crate::time::Time;
use std::time::Duration;

/// Wait before a trajectory that was given back is handed out again, per time it was given back.
const RETURN_DELAY: Duration = Duration::from_millis(200);

impl Core {
    /// Whether this agent worker holds the lease of this trajectory now. The driver asks before it
    /// stores a turn: a void lease is refused at the store's door (I-2).
    pub fn holds_lease(&self, agent: Incarnation, id: TrajectoryId) -> bool {
        self.is_leased(agent, id) && self.s.instances.life(agent).is_some()
    }

    fn is_leased(&self, agent: Incarnation, id: TrajectoryId) -> bool {
        self.s.trajectories.get(id).map(|t| t.place) == Some(Place::Leased(agent))
    }

    /// Whether generation may begin: it waits for `n_init` engines once, at the job's start.
    fn begin(&mut self) -> bool {
        if !self.s.begun {
            let wanted = self.config.role(Role::Rollout).n_init;
            let index = self.index();
            let serves = index.counts(Role::Rollout).serves + index.counts(Role::Hybrid).serves;
            let most = self.s.instances.engines().count();
            self.s.begun = serves as usize >= (wanted as usize).min(most);
        }
        self.s.begun
    }

    /// Everything that is leased, and to whom.
    pub fn leases(&self) -> Vec<(TrajectoryId, Incarnation)> {
        self.s.trajectories.leased()
    }

    /// Prompts of a batch that is open: batches keep the shape they began with.
    pub fn batch_prompts(&self, batch: u64) -> Option<u32> {
        self.s.trajectories.batch_prompts(batch)
    }

    /// Whether anything published is fit to generate for a batch. Agent workers full of trajectories
    /// that wait for weights would have no room for those that the step before still needs.
    fn weights_exist(&self, batch: u64) -> bool {
        let oldest = *self.fit_versions(batch).start();
        self.config.mode == Mode::Sync || self.s.published.unwrap_or_default() >= oldest
    }

    /// Hands pending trajectories to the agent workers with the fewest, below their concurrency.
    pub(in crate::core) fn dispatch(&mut self) {
        self.open_batches();
        // Before anything is waited for: what is due and stays so would wake the driver again and again.
        self.s.trajectories.take_due(self.now);
        if !self.begin() {
            return;
        }
        while let Some(id) = self.s.trajectories.next_pending() {
            if !self.weights_exist(id.batch) || !self.may_begin(id.batch) {
                return;
            }
            let Some(agent) = self.index().idlest_agent() else {
                return;
            };
            self.s.trajectories.lease(id, agent);
            self.out.push_back(Output::Dispatch {
                agent,
                trajectory: id,
            });
        }
    }

    /// An agent worker stored a finished trajectory. It counts even from one that died since: it is
    /// durable, and must not be generated again (I-2).
    pub(in crate::core) fn on_finished(
        &mut self,
        agent: Incarnation,
        present: Option<Current>,
        id: TrajectoryId,
        reward: f64,
        oldest: WeightVersion,
    ) {
        let starting = !self.started;
        let now = self.now;
        let Some(t) = self.s.trajectories.get(id) else {
            return;
        };
        let over = matches!(t.place, Place::Finished { .. } | Place::SetAside);
        if over || !(starting || t.holders.contains(&agent)) {
            return;
        }
        // It brought one to its end, which is useful work, though the weights that its engines had may
        // make it too old to train on.
        if let Some(present) = present {
            let a = self.s.instances.of_mut(present);
            a.succeeded();
            a.given_back = GivenBack::default();
            a.last_sign = now;
        }
        if self.is_stale(id, oldest) {
            return self.drop_stale(id, oldest);
        }
        let holder = match t.place {
            Place::Leased(holder) if holder != agent => Some(holder),
            _ => None,
        };
        let finished = Place::Finished { reward, oldest };
        self.s.trajectories.set(id, finished);
        self.s.finished_since += 1;
        if let Some(holder) = holder {
            self.out.push_back(Output::Revoke {
                agent: holder,
                trajectory: id,
            });
        }
    }

    /// An agent worker gave a trajectory back: an infrastructure failure is never a sample, so it has
    /// no reward and its step waits for it. It is generated on from what is stored, unless just that is
    /// what cannot be done.
    pub(in crate::core) fn on_returned(
        &mut self,
        agent: Current,
        id: TrajectoryId,
        reason: &str,
        by: ReturnedBy,
    ) {
        if !self.is_leased(agent.incarnation, id) {
            return;
        }
        let now = self.now;
        let until = |returns: u32| now + RETURN_DELAY * returns.min(25);
        match by {
            _ if self.config.mutant(Mutation::LoseReturned) => {}
            ReturnedBy::Worker | ReturnedBy::Daemon => self.s.trajectories.give_back(id, until),
            ReturnedBy::Diverged => {
                self.s.trajectories.begin_again(id, until);
                let trajectories = vec![id];
                let discarded = Record::Discarded { trajectories };
                self.out.push_back(Output::Record(discarded));
            }
        }
        if self.config.mutant(Mutation::TrainReturned) {
            let (reward, oldest) = (0.0, WeightVersion(id.batch.saturating_sub(1)));
            let finished = Place::Finished { reward, oldest };
            self.s.trajectories.set(id, finished);
        }
        let who = Some(agent.id);
        let text = format!("trajectory {id} given back, no sample: {reason}");
        self.event(Severity::Warn, "returned", who, text);
        self.s.given_back += 1;
        if by != ReturnedBy::Daemon {
            self.note_given_back(agent, reason);
        }
    }

    /// An agent worker linked: what it holds and what the table says are brought together.
    pub(in crate::core) fn reconcile_leases(&mut self, agent: Incarnation, held: &[TrajectoryId]) {
        for id in self.s.trajectories.held_by(agent) {
            if held.contains(&id) {
                continue;
            }
            let trajectory = id;
            if self.may_begin(id.batch) {
                self.out.push_back(Output::Dispatch { agent, trajectory });
            } else {
                // The command was lost before the job was to pause: it was not begun.
                self.s.trajectories.set(id, Place::Pending(Time(0)));
                self.out.push_back(Output::Revoke { agent, trajectory });
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

    /// Makes the table hold what a restored job may be told of before [`crate::core::Input::Start`].
    pub(in crate::core) fn open_batches(&mut self) {
        if self.s.job == JobState::Running && self.config.own_loop.is_none() {
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
