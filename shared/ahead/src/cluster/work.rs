//! What engines and agent workers do: pulls, conversations, turns at their slots.
use super::{Cluster, Event};
use crate::dice::Dice;
use robust_shared::core::{Input, PullOrder, RoleEvent};
use robust_shared::ids::{Incarnation, Step, TrajectoryId, WeightVersion};
use robust_shared::phase::Phase;
use robust_shared::time::Time;
use std::time::Duration;

/// An agent worker asks again so long after its stream broke.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// And so long after nobody answered.
const NO_ANSWER: Duration = Duration::from_secs(1);

/// A request that an engine is serving, or that waits for one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) agent: Incarnation,
    pub(super) trajectory: TrajectoryId,
    /// Who serves it; nobody's number before.
    pub(super) rollout: Incarnation,
    /// Since when it is computed.
    pub(super) began: Option<Time>,
}

/// How far a trajectory has come. It outlives its agent worker: turns are stored.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    pub(super) turns: u32,
    /// Generated of the present turn, where an engine died under it or sent it away.
    pub(super) generated: Duration,
}

impl Cluster {
    // ---- weights ----

    pub(super) fn pull(
        &mut self,
        puller: Incarnation,
        order: PullOrder,
        sources: &[Incarnation],
        from_trainer: bool,
    ) {
        let version = order.version;
        self.pulls.insert(puller, order);
        if self.wires.is_some() {
            return self.wired_pull(puller, version, sources, from_trainer);
        }
        self.after(self.plan.timing.pull, Event::PullEnds(puller, version.0));
    }

    pub(super) fn pull_ends(&mut self, puller: Incarnation, version: u64) {
        let ordered = self.pulls.get(&puller).copied();
        let Some(PullOrder { version, order }) = ordered.filter(|o| o.version.0 == version) else {
            return;
        };
        if !self.works(puller) && self.alive(puller) {
            return;
        }
        self.pulls.remove(&puller);
        if self.alive(puller) {
            self.feed(Input::Role(
                puller,
                RoleEvent::Pulled {
                    version,
                    order,
                    result: Ok(()),
                },
            ));
        }
    }

    // ---- conversations ----

    /// An agent worker wants an engine for the next turn.
    pub(super) fn ask(&mut self, agent: Incarnation, trajectory: TrajectoryId) {
        if !self.alive(agent) || !self.core.holds_lease(agent, trajectory) {
            return;
        }
        self.serial += 1;
        let ticket = self.serial;
        let request = Request {
            agent,
            trajectory,
            rollout: Incarnation(0),
            began: None,
        };
        self.requests.insert(ticket, request);
        self.feed(Input::Role(
            agent,
            RoleEvent::RouteRequested { ticket, trajectory },
        ));
    }

    /// The length of a turn is the trajectory's own: the same after every fault.
    pub(super) fn turn_of(&self, id: TrajectoryId) -> Duration {
        let timing = &self.plan.timing;
        let mut dice = Dice::keyed(self.plan.seed, id.key());
        timing.conversation.draw(&mut dice) / timing.turns.max(1)
    }

    /// The controller sends a request to an engine, which computes it when it can.
    pub(super) fn routed(&mut self, ticket: u64, rollout: Incarnation) {
        let concurrency = self.plan.timing.concurrency;
        let Some(request) = self.requests.get_mut(&ticket) else {
            return self.serve_client(ticket);
        };
        request.rollout = rollout;
        if !self.alive(rollout) {
            // Nobody answers there; the agent tries again until the controller knows.
            return self.ask_again(ticket, NO_ANSWER);
        }
        let Some(process) = self.process_mut(rollout) else {
            return;
        };
        if process.requests >= concurrency {
            return process.waiting.push_back(ticket);
        }
        let idle = process.phase != Phase::Generating;
        process.phase = Phase::Generating;
        self.compute(ticket, rollout);
        if idle {
            // Told by an event of its own: the controller is in the middle of its outputs here.
            let input = Input::Role(
                rollout,
                RoleEvent::PhaseChanged {
                    phase: Phase::Generating,
                    step: Step(0),
                },
            );
            self.after(Duration::ZERO, Event::Feed(Box::new(input)));
        }
    }

    fn compute(&mut self, ticket: u64, rollout: Incarnation) {
        let now = self.now;
        let Some(id) = self.requests.get(&ticket).map(|r| r.trajectory) else {
            return;
        };
        if !self.works(rollout) {
            return self.one_more(rollout);
        }
        let Some(request) = self.requests.get_mut(&ticket) else {
            return;
        };
        request.began = Some(now);
        let generated = self.progress.entry(id).or_default().generated;
        let left = self.turn_of(id).saturating_sub(generated);
        self.after(left, Event::TurnEnds(ticket));
        self.one_more(rollout);
    }

    /// An engine has one request more.
    fn one_more(&mut self, rollout: Incarnation) {
        if let Some(process) = self.process_mut(rollout) {
            process.requests += 1;
        }
    }

    /// An engine hangs: what it generated so far is all that its requests have of it.
    pub(super) fn requests_hang(&mut self, rollout: Incarnation) {
        let now = self.now;
        for request in self.requests.values_mut() {
            if request.rollout == rollout
                && let Some(began) = request.began.take()
            {
                let progress = self.progress.entry(request.trajectory).or_default();
                progress.generated += now.since(began);
            }
        }
    }

    pub(super) fn turn_ends(&mut self, ticket: u64) {
        let serves = |request: &&Request| self.works(request.rollout);
        if self.requests.get(&ticket).filter(serves).is_none() {
            return;
        }
        let Some(request) = self.requests.remove(&ticket) else {
            return;
        };
        self.leave(request.rollout);
        let broken = false;
        self.feed(Input::RouteReleased { ticket, broken });
        let (agent, trajectory) = (request.agent, request.trajectory);
        if !self.alive(agent) || !self.core.holds_lease(agent, trajectory) {
            return;
        }
        let timing = &self.plan.timing;
        let progress = self.progress.entry(trajectory).or_default();
        *progress = Progress {
            turns: progress.turns + 1,
            generated: Duration::ZERO,
        };
        if progress.turns < timing.turns {
            return self.after(timing.tool, Event::Turn(agent, trajectory));
        }
        let lease = self.core.lease_of(trajectory);
        self.feed(Input::Role(
            agent,
            RoleEvent::TrajectoryFinished {
                trajectory,
                reward: 0.5,
                oldest_version: WeightVersion(trajectory.batch.saturating_sub(1)),
                lease,
            },
        ));
    }

    /// An engine has one request fewer.
    fn leave(&mut self, rollout: Incarnation) {
        let Some(process) = self.process_mut(rollout) else {
            return;
        };
        process.requests = process.requests.saturating_sub(1);
        match process.waiting.pop_front() {
            Some(next) => self.compute(next, rollout),
            None if process.requests == 0 && !process.paused => {
                self.enter(rollout, Phase::Idle, Step(0));
            }
            None => {}
        }
    }

    /// An engine died or sent its requests away: their agents ask again with what they have.
    pub(super) fn break_requests_of(&mut self, rollout: Incarnation) {
        let of = |(ticket, r): (&u64, &Request)| (r.rollout == rollout).then_some(*ticket);
        let mut broken: Vec<_> = self.requests.iter().filter_map(of).collect();
        broken.sort_unstable();
        self.hear_broken(broken.len());
        for ticket in broken {
            self.ask_again(ticket, ASK_AGAIN);
        }
        if let Some(process) = self.process_mut(rollout) {
            process.requests = 0;
            process.waiting.clear();
        }
    }

    /// A request came to nothing: what was generated is kept, and its agent asks for another engine.
    fn ask_again(&mut self, ticket: u64, delay: Duration) {
        let Some(request) = self.requests.remove(&ticket) else {
            return;
        };
        let generated = request.began.map(|began| self.now.since(began));
        let progress = self.progress.entry(request.trajectory).or_default();
        progress.generated += generated.unwrap_or_default();
        let broken = false;
        let released = Event::Feed(Box::new(Input::RouteReleased { ticket, broken }));
        self.after(Duration::ZERO, released);
        let again = Event::Turn(request.agent, request.trajectory);
        self.after(delay, again);
    }

    // ---- hybrid engines ----

    /// An engine does what it was told: it pauses, or goes on.
    pub(super) fn switched(&mut self, engine: Incarnation, paused: bool) {
        let works = |p: &&mut super::processes::Process| p.alive && !p.hangs;
        let Some(process) = self.process_mut(engine).filter(works) else {
            return;
        };
        process.paused = paused;
        if paused {
            self.break_requests_of(engine);
        }
        let phase = match paused {
            true => Phase::Paused,
            false => Phase::Idle,
        };
        self.enter(engine, phase, Step(0));
        self.feed(Input::Role(
            engine,
            RoleEvent::Switched { paused, ok: true },
        ));
    }
}
