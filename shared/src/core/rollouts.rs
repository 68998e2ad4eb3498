//! RolloutManager: which requests go to which rollout.
//!
//! ```text
//!  RouteRequested ──► waiting ── an eligible rollout ──► ticket (counts) ── RouteReleased ──► gone
//! ```
//! Eligible: linked, admitted, no suspect, and at a version fit for the trajectory's batch. In sync
//! mode that is exactly the version of the step before; else at most `max_staleness` older.
use super::Core;
use super::config::Mode;
use super::instance::Instance;
use super::output::Output;
use crate::ids::{Incarnation, TrajectoryId};
use std::collections::{BTreeMap, VecDeque};

/// Requests for a rollout: those being served and those that wait.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    tickets: BTreeMap<u64, Ticket>,
    waiting: VecDeque<Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Ticket {
    agent: Incarnation,
    trajectory: TrajectoryId,
    rollout: Incarnation,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    ticket: u64,
    agent: Incarnation,
    trajectory: TrajectoryId,
}

impl Routes {
    /// A rollout is gone: its agents notice by their broken streams and ask again.
    pub fn drop_rollout(&mut self, rollout: Incarnation) {
        self.tickets.retain(|_, t| t.rollout != rollout);
    }

    /// An agent worker is gone, and with it whoever would use its answers.
    pub fn drop_agent(&mut self, agent: Incarnation) {
        self.tickets.retain(|_, t| t.agent != agent);
        self.waiting.retain(|w| w.agent != agent);
    }

    /// An agent runs one request per trajectory, so a new one ends what came before it.
    fn drop_trajectory(&mut self, agent: Incarnation, trajectory: TrajectoryId) {
        self.tickets
            .retain(|_, t| (t.agent, t.trajectory) != (agent, trajectory));
        self.waiting
            .retain(|w| (w.agent, w.trajectory) != (agent, trajectory));
    }
}

impl Core {
    /// Requests a rollout is serving, by the tickets given.
    pub(super) fn running(&self, rollout: Incarnation) -> u32 {
        let count = self
            .routes
            .tickets
            .values()
            .filter(|t| t.rollout == rollout)
            .count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    pub(super) fn on_route_requested(
        &mut self,
        ticket: u64,
        agent: Incarnation,
        trajectory: TrajectoryId,
    ) {
        if self.s.instances.life(agent).is_none() {
            return;
        }
        if let Some(t) = self.routes.tickets.get(&ticket) {
            return self.out.push_back(Output::Route {
                ticket,
                rollout: t.rollout,
            });
        }
        if self.routes.waiting.iter().any(|w| w.ticket == ticket) {
            return;
        }
        if !self.holds_lease(agent, trajectory) {
            // The driver ends the waiting call of an agent that is told to drop the trajectory.
            return self.out.push_back(Output::Revoke { agent, trajectory });
        }
        self.routes.drop_trajectory(agent, trajectory);
        self.routes.waiting.push_back(Waiting {
            ticket,
            agent,
            trajectory,
        });
    }

    pub(super) fn on_route_released(&mut self, ticket: u64) {
        self.routes.waiting.retain(|w| w.ticket != ticket);
        if let Some(t) = self.routes.tickets.remove(&ticket) {
            let now = self.now;
            let idle = self.running(t.rollout) == 0;
            if let Some(r) = self.s.instances.life_mut(t.rollout)
                && idle
            {
                r.tokens_at = now;
            }
        }
    }

    /// Answers the requests that wait, oldest first, as far as rollouts are fit for them.
    pub(super) fn answer_routes(&mut self) {
        let waiting = std::mem::take(&mut self.routes.waiting);
        for w in waiting {
            if !self.holds_lease(w.agent, w.trajectory) {
                continue;
            }
            let Some(rollout) = self.choose_rollout(w.trajectory) else {
                self.routes.waiting.push_back(w);
                continue;
            };
            self.begin_load(rollout);
            let (agent, trajectory) = (w.agent, w.trajectory);
            self.routes.tickets.insert(
                w.ticket,
                Ticket {
                    agent,
                    trajectory,
                    rollout,
                },
            );
            self.out.push_back(Output::Route {
                ticket: w.ticket,
                rollout,
            });
        }
    }

    /// The silent rule counts from the first request a rollout gets.
    fn begin_load(&mut self, rollout: Incarnation) {
        let (now, idle) = (self.now, self.running(rollout) == 0);
        if let Some(r) = self.s.instances.life_mut(rollout)
            && idle
        {
            r.tokens_at = now;
        }
    }

    fn choose_rollout(&self, trajectory: TrajectoryId) -> Option<Incarnation> {
        let fit = self
            .s
            .instances
            .engines()
            .filter(|r| self.eligible(r, trajectory));
        fit.map(|r| (self.running(r.incarnation), r.id.index, r.incarnation))
            .min()
            .map(|t| t.2)
    }

    fn eligible(&self, r: &Instance, trajectory: TrajectoryId) -> bool {
        let Some(version) = r.version else {
            return false;
        };
        let newest = trajectory.batch.saturating_sub(1);
        let fit = match self.config.mode {
            Mode::Sync => version.0 == newest,
            Mode::SemiSync | Mode::Async => {
                version.0 >= newest.saturating_sub(self.config.max_staleness)
            }
        };
        fit && r.attached() && r.admitted && r.suspect.is_none() && r.condemned.is_none()
    }
}
