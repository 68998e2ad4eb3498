//! The work (`core/work`): what the other machines know is told to it, and what it found out is told to them.
use crate::core::config::Policy;
use crate::core::detect::agent_unable;
use crate::core::effects::Cx;
use crate::core::input::ReturnedBy;
use crate::core::output::{Output, Record};
use crate::core::roster::instances::Current;
use crate::core::work::Work;
use crate::core::work::trajectories::{Finished, Supply, Trajectory};
use crate::core::{Core, JobState};
use crate::ids::{Incarnation, Role, TrajectoryId, WeightVersion};

impl Core {
    /// Whether this agent worker holds the lease of this trajectory now. The driver asks before it
    /// stores a turn: a void lease is refused at the store's door (I-2).
    pub fn holds_lease(&self, agent: Incarnation, id: TrajectoryId) -> bool {
        self.s.work.requests.is_leased(agent, id) && self.s.roster.instances().life(agent).is_some()
    }

    /// Everything that is leased, and to whom.
    pub fn leases(&self) -> Vec<(TrajectoryId, Incarnation)> {
        self.s.work.requests.table().leased()
    }

    /// The number of the lease of a trajectory that was given last; 0: none was.
    pub fn lease_of(&self, id: TrajectoryId) -> u64 {
        self.s.work.requests.lease_of(id)
    }

    /// A trajectory of a batch that is open.
    pub fn trajectory(&self, id: TrajectoryId) -> Option<&Trajectory> {
        self.s.work.requests.table().get(id)
    }

    /// Prompts of a batch that is open: batches keep the shape they began with.
    pub fn batch_prompts(&self, batch: u64) -> Option<u32> {
        self.s.work.requests.table().batch_prompts(batch)
    }

    /// The work, and what it is given with whatever it is to take in.
    pub(in crate::core) fn work(&mut self) -> (&mut Work, Cx<'_>) {
        let cx = Cx {
            now: self.now,
            config: &self.config,
            out: &mut self.out,
        };
        (&mut self.s.work, cx)
    }

    /// Makes the table hold what a restored job may be told of before [`crate::core::Input::Start`].
    pub(in crate::core) fn open_batches(&mut self) {
        if self.s.job == JobState::Running {
            let committed = self.s.committed;
            let (work, cx) = self.work();
            work.requests.open_batches(&cx, committed);
        }
    }

    pub(in crate::core) fn dispatch(&mut self) {
        self.open_batches();
        self.derive();
        let index = self.s.roster.index();
        let supply = Supply {
            serving: index.counts(Role::Rollout).serves + index.counts(Role::Hybrid).serves,
            engines: self.s.roster.instances().engines().count(),
            published: self.s.weights.published(),
            last: self.s.orders.last_to_begin(&self.config),
        };
        let (work, mut cx) = self.work();
        work.requests.dispatch(&mut cx, supply);
    }

    pub(in crate::core) fn answer_routes(&mut self) {
        if self.s.orders.is_paused() {
            return;
        }
        self.derive();
        let mut cx = Cx {
            now: self.now,
            config: &self.config,
            out: &mut self.out,
        };
        let Work {
            requests, rollouts, ..
        } = &mut self.s.work;
        for engine in rollouts.answer(&mut cx, requests, &self.s.recover.deaths) {
            self.s.roster.load_begins(engine, self.now);
        }
    }

    pub(in crate::core) fn on_finished(
        &mut self,
        agent: Incarnation,
        present: Option<Current>,
        (trajectory, lease): (TrajectoryId, u64),
        (reward, oldest): (f64, WeightVersion),
    ) {
        let finished = Finished {
            trajectory,
            reward,
            oldest,
            lease,
        };
        let restores = !self.started;
        let (work, mut cx) = self.work();
        let useful = work.requests.finished(&mut cx, restores, agent, finished);
        if let Some(present) = present.filter(|_| useful) {
            self.s.roster.of_mut(present).finished(self.now);
        }
    }

    pub(in crate::core) fn on_returned(
        &mut self,
        agent: Current,
        lease: (TrajectoryId, u64),
        reason: &str,
        by: ReturnedBy,
    ) {
        let (work, mut cx) = self.work();
        let whose = (agent.incarnation, agent.id);
        let held = work.requests.returned(&mut cx, whose, lease, reason, by);
        if held && by != ReturnedBy::Daemon {
            let (roster, cx) = self.roster();
            let unable = agent_unable::gives_back(&cx, roster.of_mut(agent), reason);
            if let Some(verdict) = unable {
                self.fault(verdict);
            }
        }
    }

    pub(in crate::core) fn on_route_requested(
        &mut self,
        ticket: u64,
        agent: Incarnation,
        trajectory: TrajectoryId,
    ) {
        let (work, mut cx) = self.work();
        let Work {
            requests, rollouts, ..
        } = work;
        rollouts.requested(&mut cx, ticket, (agent, trajectory), requests);
    }

    pub(in crate::core) fn on_route_released(&mut self, ticket: u64, broken: bool) {
        let (work, cx) = self.work();
        let Some(asked) = work.rollouts.released(&cx, ticket, broken) else {
            return;
        };
        if let Some(trajectory) = asked.trajectory().filter(|_| !broken) {
            self.s.recover.deaths.clear(trajectory);
        }
        // The silent rule counts from the first request that a rollout gets, and anew after its last.
        let idle = |engine: &Incarnation| self.s.work.rollouts.running(*engine) == 0;
        if let Some(engine) = asked.rollout.filter(idle) {
            self.s.roster.load_begins(engine, self.now);
        }
    }

    /// Throws away what was generated and not consumed, if that is what a task restart costs.
    pub(in crate::core) fn discard_generated(&mut self) {
        if self.config.policy != Policy::Task {
            return;
        }
        let share = self.s.trainer_share(&self.config);
        for waste in self.s.ledger.generation_lost(self.now, share) {
            self.out.push(Output::Record(Record::Interval(waste)));
        }
        let (work, mut cx) = self.work();
        work.requests.discard(&mut cx);
    }
}
