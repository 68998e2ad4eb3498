//! RolloutManager: which requests go to which rollout.
//!
//! ```text
//!  RouteRequested ───────┬─► waiting ── an eligible rollout ──► served (counts) ─┬─► gone
//!  ClientRouteRequested ─┘                             RouteReleased, its end ───┘
//! ```
//! Eligible: linked, admitted, no suspect, on a slot whose turn it has (`context`), and at a version
//! fit for the trajectory's batch. In sync
//! mode that is exactly the version of the step before; else at most `route_staleness` older. Among
//! those the one with the fewest requests is taken, if it has room for one more. Trajectories that are
//! suspected to take engines along (`poison`) are never together on one.
//!
//! Clients of the router have no batch: what is fit for them is what would be fit for a batch
//! trained on the newest version that is served. They count like agents' requests, and wait behind
//! them.
mod table;

pub use table::{Asked, Asker, Routes};

use crate::core::config::Mode;
use crate::core::output::Output;
use crate::core::roster::instance::Instance;
use crate::core::roster::instances::Current;
use crate::core::{Core, Mutation};
use crate::ids::{Incarnation, TrajectoryId, WeightVersion};
use crate::time::Time;
use std::ops::RangeInclusive;

impl Core {
    /// Requests a rollout is serving, by the tickets given.
    pub(in crate::core) fn running(&self, rollout: Incarnation) -> u32 {
        self.routes.load(rollout)
    }

    pub(in crate::core) fn on_route_requested(
        &mut self,
        ticket: u64,
        Current {
            incarnation: agent, ..
        }: Current,
        trajectory: TrajectoryId,
    ) {
        if self.has_asked(ticket) {
            return;
        }
        if !self.holds_lease(agent, trajectory) {
            // The driver ends the waiting call of an agent that is told to drop the trajectory.
            return self.out.push_back(Output::Revoke { agent, trajectory });
        }
        // Its end is still on the way, and is not heard of any more.
        let before = self.routes.ask(ticket, Asker::Agent { agent, trajectory });
        self.broken_off(before);
    }

    pub(in crate::core) fn on_client_route_requested(
        &mut self,
        ticket: u64,
        avoid: Option<Incarnation>,
    ) {
        if !self.has_asked(ticket) {
            // A client's request ends no other.
            self.routes.ask(ticket, Asker::Client { avoid });
        }
    }

    /// Whether the request came before; its answer, if it has one, is given again.
    fn has_asked(&mut self, ticket: u64) -> bool {
        let Some(asked) = self.routes.get(ticket) else {
            return false;
        };
        if let Some(rollout) = asked.rollout {
            self.out.push_back(Output::Route { ticket, rollout });
        }
        true
    }

    /// Remembers what rollouts may have died of.
    pub(in crate::core) fn broken_off(&mut self, requests: impl IntoIterator<Item = Asked>) {
        if self.poison_after() > 0 {
            let now = self.now;
            let each = requests.into_iter();
            each.for_each(|asked| self.routes.break_off(asked, now));
        }
    }

    pub(in crate::core) fn on_route_released(&mut self, ticket: u64, broken: bool) {
        let Some(asked) = self.routes.end(ticket) else {
            return;
        };
        match broken {
            true => self.broken_off([asked]),
            false => {
                let finished = asked.trajectory().into_iter();
                finished.for_each(|trajectory| self.s.deaths.clear(trajectory));
            }
        }
        if let Some(rollout) = asked.rollout {
            self.load_turns(rollout);
        }
    }

    /// Answers the requests that wait, oldest first, as far as rollouts are fit for them.
    pub(in crate::core) fn answer_routes(&mut self) {
        if self.is_paused() {
            return;
        }
        let mut from = (0, 0);
        while let Some((batch, age, ticket)) = self.routes.next_waiting(from) {
            let Some(Asked { asker, .. }) = self.routes.get(ticket).copied() else {
                return;
            };
            if let Asker::Agent { agent, trajectory } = asker
                && !self.holds_lease(agent, trajectory)
            {
                self.routes.end(ticket);
                continue;
            }
            let Some(rollout) = self.rollout_for(asker) else {
                from = match asker {
                    Asker::Agent { trajectory, .. } if self.s.deaths.is_suspect(trajectory) => {
                        (batch, age + 1)
                    }
                    Asker::Agent { .. } => (batch + 1, 0),
                    // What one client has to wait for, all of them have.
                    Asker::Client { .. } => return,
                };
                continue;
            };
            self.load_turns(rollout);
            self.routes.serve(ticket, rollout);
            self.out.push_back(Output::Route { ticket, rollout });
        }
    }

    fn rollout_for(&mut self, asker: Asker) -> Option<Incarnation> {
        let limit = self.config.engine_requests;
        match asker {
            Asker::Agent { trajectory, .. } => {
                let fit = self.fit_versions(trajectory.batch);
                match self.s.deaths.is_suspect(trajectory) {
                    true => self.engine_without_suspects(fit, limit),
                    false => self.index().idlest_engine(fit, limit, None),
                }
            }
            Asker::Client { avoid } => {
                let newest = self.index().newest_served()?;
                let fit = self.fit_versions(newest.0.saturating_add(1));
                let index = self.index();
                let other = index.idlest_engine(fit.clone(), limit, avoid);
                other.or_else(|| index.idlest_engine(fit, limit, None))
            }
        }
    }

    /// The idlest engine on which nobody is who took engines along, as far as is known (`poison`).
    fn engine_without_suspects(
        &mut self,
        fit: RangeInclusive<WeightVersion>,
        limit: u32,
    ) -> Option<Incarnation> {
        self.sync();
        let free = |r: &&Instance| {
            let life = r.incarnation;
            let mut served = self.routes.in_flight(life, Time::FAR);
            self.eligible(r)
                && r.version.is_some_and(|v| fit.contains(&v))
                && self.running(life) < limit
                && !served.any(|other| self.s.deaths.is_suspect(other))
        };
        let engines = self.s.instances.engines().filter(free);
        let idlest = engines.min_by_key(|r| (self.running(r.incarnation), r.id));
        idlest.map(|r| r.incarnation)
    }

    /// The silent rule counts from the first request a rollout gets, and anew after its last.
    fn load_turns(&mut self, rollout: Incarnation) {
        let (now, idle) = (self.now, self.running(rollout) == 0);
        if idle {
            self.s.instances.load_begins(rollout, now);
        }
    }

    /// The versions whose tokens a batch may have.
    pub(in crate::core) fn fit_versions(&self, batch: u64) -> RangeInclusive<WeightVersion> {
        let newest = batch.saturating_sub(1);
        if self.config.mutant(Mutation::StaleWeights) {
            return WeightVersion(0)..=WeightVersion(u64::MAX);
        }
        match self.config.mode {
            Mode::Sync => WeightVersion(newest)..=WeightVersion(newest),
            Mode::SemiSync | Mode::Async => {
                let oldest = newest.saturating_sub(self.config.route_staleness());
                WeightVersion(oldest)..=WeightVersion(u64::MAX)
            }
        }
    }

    /// Whether requests may be routed to it, whatever its version.
    pub(in crate::core) fn eligible(&self, r: &Instance) -> bool {
        r.id.role.is_engine()
            && r.attached()
            && r.admitted
            && (r.suspect.is_none() || self.config.mutant(Mutation::RouteToSuspect))
            && r.condemned.is_none()
            && self.has_its_turn(r)
            && !r.going()
    }
}
