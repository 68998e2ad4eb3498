//! RolloutManager: which requests go to which rollout.
//!
//! ```text
//!  RouteRequested ───────┬─► waiting ── an engine that is fit ──► served (counts) ─┬─► gone
//!  ClientRouteRequested ─┘                             RouteReleased, its end ───┘
//! ```
//! An engine takes requests while the roster says so ([`super::Takes`]): linked, admitted, no suspect, on a
//! slot whose turn it has (`context`). It is fit for a request if it is at a version fit for the trajectory's
//! batch: in sync mode exactly the version of the step before; else at most `route_staleness` older. Among
//! those the one with the fewest requests is taken, if it has room for one more. Trajectories that are
//! suspected to take engines along (`poison`) are never together on one, and wait while it is not known
//! whether the engine that broke them off died of them.
//!
//! Clients of the router have no batch: what is fit for them is what would be fit for a batch
//! trained on the newest version that is served. They count like agents' requests, and wait behind
//! them.
mod table;

pub use table::{Asked, Asker, Routes};

use super::idlest::Idlest;
use super::trajectories::RequestManager;
use crate::core::detect::poison::BROKEN_OFF;
use crate::core::effects::Cx;
use crate::core::output::Output;
use crate::core::recover::deaths::{Company, Deaths};
use crate::hash::IdMap;
use crate::ids::{Incarnation, InstanceId, TrajectoryId, WeightVersion};
use crate::time::Time;
use std::collections::BTreeSet;

/// Sends requests to engines.
#[derive(Clone, Debug, Default)]
pub struct RolloutManager {
    routes: Routes,
    /// Engines that may get requests, by version.
    engines: Idlest<WeightVersion>,
    /// Engines whose number of requests changed, for the roster.
    changed: Vec<Incarnation>,
}

/// What was found of those that are kept apart, in one look at all that wait.
#[derive(Default)]
struct Apart {
    /// The strictest company of those on an engine.
    strictest: IdMap<Incarnation, Company>,
    /// Batches and companies for which no engine is fit.
    refused: BTreeSet<(u64, Company)>,
}

impl Apart {
    /// An engine serves one more.
    fn joins(&mut self, engine: Incarnation, company: Company) {
        if let Some(strictest) = self.strictest.get_mut(&engine) {
            *strictest = company.max(*strictest);
        }
    }
}

/// Nothing of it is remembered, so any two are equal.
impl PartialEq for RolloutManager {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl RolloutManager {
    /// The requests that wait and that are served.
    pub fn table(&self) -> &Routes {
        &self.routes
    }

    /// Requests a rollout is serving, by the tickets given.
    pub fn running(&self, rollout: Incarnation) -> u32 {
        self.routes.load(rollout)
    }

    /// The newest version of engines that may get requests.
    pub fn newest_served(&self) -> Option<WeightVersion> {
        self.engines.last_key()
    }

    /// An agent worker wants an engine for the next turn of a trajectory whose lease it should hold.
    pub fn requested(
        &mut self,
        cx: &mut Cx<'_>,
        ticket: u64,
        (agent, trajectory): (Incarnation, TrajectoryId),
        leases: &RequestManager,
    ) {
        if self.has_asked(cx, ticket) {
            return;
        }
        if !leases.is_leased(agent, trajectory) {
            // The driver ends the waiting call of an agent that is told to drop the trajectory.
            return cx.out.push(Output::Revoke { agent, trajectory });
        }
        // Its end is still on the way, and is not heard of any more.
        let before = self.routes.ask(ticket, Asker::Agent { agent, trajectory });
        self.broken_off(cx, before);
    }

    /// A client of the router wants one, but not the one that failed it.
    pub fn client_requested(&mut self, cx: &mut Cx<'_>, ticket: u64, avoid: Option<Incarnation>) {
        if !self.has_asked(cx, ticket) {
            // A client's request ends no other.
            self.routes.ask(ticket, Asker::Client { avoid });
        }
    }

    /// Whether the request came before; its answer, if it has one, is given again.
    fn has_asked(&self, cx: &mut Cx<'_>, ticket: u64) -> bool {
        let Some(asked) = self.routes.get(ticket) else {
            return false;
        };
        if let Some(rollout) = asked.rollout {
            cx.out.push(Output::Route { ticket, rollout });
        }
        true
    }

    /// A request is over: it ended well, or it was `broken` off. Returns it.
    pub fn released(&mut self, cx: &Cx<'_>, ticket: u64, broken: bool) -> Option<Asked> {
        let asked = self.routes.end(ticket)?;
        if broken {
            self.broken_off(cx, [asked]);
        }
        Some(asked)
    }

    /// Remembers what rollouts may have died of.
    fn broken_off(&mut self, cx: &Cx<'_>, requests: impl IntoIterator<Item = Asked>) {
        if cx.config.poison_after() > 0 {
            let each = requests.into_iter();
            each.for_each(|asked| self.routes.break_off(asked, cx.now));
        }
    }

    /// Answers the requests that wait, oldest first, as far as engines are fit for them. Engines that had none
    /// before.
    pub fn answer(
        &mut self,
        cx: &mut Cx<'_>,
        leases: &RequestManager,
        deaths: &Deaths,
    ) -> Vec<Incarnation> {
        self.settle();
        let mut apart = Apart::default();
        let (mut from, mut first) = ((0, 0), Vec::new());
        while let Some((batch, age, ticket)) = self.routes.next_waiting(from) {
            let Some(Asked { asker, .. }) = self.routes.get(ticket).copied() else {
                break;
            };
            if let Asker::Agent { agent, trajectory } = asker
                && !leases.is_leased(agent, trajectory)
            {
                self.routes.end(ticket);
                continue;
            }
            let company = match asker {
                Asker::Agent { trajectory, .. } => self.company(cx, trajectory, deaths),
                Asker::Client { .. } => Company::Any,
            };
            let Some(rollout) = self.rollout_for(cx, (asker, company), deaths, &mut apart) else {
                from = match asker {
                    // What one that is kept apart has to wait for, others have not.
                    Asker::Agent { .. } if company != Company::Any => (batch, age + 1),
                    Asker::Agent { .. } => (batch + 1, 0),
                    // What one client has to wait for, all of them have.
                    Asker::Client { .. } => break,
                };
                continue;
            };
            if self.running(rollout) == 0 {
                first.push(rollout);
            }
            self.routes.serve(ticket, rollout);
            self.settle();
            apart.joins(rollout, company);
            cx.out.push(Output::Route { ticket, rollout });
        }
        first
    }

    fn rollout_for(
        &self,
        cx: &Cx<'_>,
        (asker, company): (Asker, Company),
        deaths: &Deaths,
        apart: &mut Apart,
    ) -> Option<Incarnation> {
        let limit = cx.config.engine_requests;
        match asker {
            Asker::Agent { trajectory, .. } => {
                let fit = cx.config.fit_versions(trajectory.batch);
                if company == Company::Any {
                    return self.engines.idlest(fit, limit, |_| true);
                }
                let (since, of) = (cx.now - BROKEN_OFF, (trajectory.batch, company));
                let waits =
                    company == Company::Alone && self.routes.broke_off(trajectory, since) > 0;
                if waits || apart.refused.contains(&of) {
                    return None;
                }
                let fits = |engine| {
                    let there = || {
                        let there = self.routes.in_flight(engine, since);
                        let there = there.map(|other| self.company(cx, other, deaths));
                        there.max().unwrap_or(Company::Any)
                    };
                    company.bears(*apart.strictest.entry(engine).or_insert_with(there))
                };
                let engine = self.engines.idlest(fit, limit, fits);
                if engine.is_none() {
                    // Engines only get more, until the next look at all that wait.
                    apart.refused.insert(of);
                }
                engine
            }
            Asker::Client { avoid } => {
                let newest = self.newest_served()?;
                let fit = cx.config.fit_versions(newest.0.saturating_add(1));
                let other = |engine| Some(engine) != avoid;
                let other = self.engines.idlest(fit.clone(), limit, other);
                other.or_else(|| self.engines.idlest(fit, limit, |_| true))
            }
        }
    }

    /// With whom it may be on one engine, as far as is known by now.
    fn company(&self, cx: &Cx<'_>, id: TrajectoryId, deaths: &Deaths) -> Company {
        let since = cx.now - BROKEN_OFF;
        deaths.company(id, || self.routes.broke_off(id, since))
    }

    /// What an engine serves, and what it broke off since then; none where it may serve requests that are not
    /// known here.
    pub fn in_flight(
        &self,
        engine: Incarnation,
        since: Time,
    ) -> Option<impl Iterator<Item = TrajectoryId>> {
        let known = !self.routes.is_blind(engine);
        known.then(|| self.routes.in_flight(engine, since))
    }

    /// An agent worker is gone, and with it whoever would use its answers.
    pub fn drop_agent(&mut self, cx: &Cx<'_>, agent: Incarnation) {
        let broken = self.routes.drop_agent(agent);
        self.broken_off(cx, broken);
    }

    /// An engine is gone: who was served notices by the broken stream and asks again.
    pub fn drop_rollout(&mut self, rollout: Incarnation) {
        self.routes.drop_rollout(rollout);
    }

    /// These were here before this daemon.
    pub fn adopt(&mut self, rollouts: impl Iterator<Item = Incarnation>) {
        self.routes.adopt(rollouts);
    }

    /// It serves nothing: what it is given from now on is known.
    pub fn seen_idle(&mut self, rollout: Incarnation) {
        self.routes.seen_idle(rollout);
    }

    /// An engine takes requests for its version, or none any more.
    pub fn offer(&mut self, id: InstanceId, engine: Incarnation, serves: Option<WeightVersion>) {
        match serves {
            Some(version) => self.engines.add(engine, id, version, self.running(engine)),
            None => self.engines.remove(engine),
        }
    }

    /// One of the engines whose number of requests changed.
    pub fn next_changed(&mut self) -> Option<Incarnation> {
        self.settle();
        self.changed.pop()
    }

    /// Those whose requests changed are in order again.
    fn settle(&mut self) {
        while let Some(engine) = self.routes.next_changed() {
            self.engines.loads(engine, self.routes.load(engine));
            self.changed.push(engine);
        }
    }

    pub(super) fn forget_offers(&mut self) {
        self.engines = Idlest::default();
    }

    pub(super) fn has_same_offers(&self, other: &Self) -> bool {
        self.engines == other.engines
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.routes.check()
    }
}
