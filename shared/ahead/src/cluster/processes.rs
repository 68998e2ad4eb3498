//! Processes: starts, links, ends, phases, samples.
use super::{Cluster, Event};
use robust_shared::core::{Exit, Hello, Input, RoleEvent, Sample};
use robust_shared::ids::{Incarnation, InstanceId, NodeId, Role, Step};
use robust_shared::phase::Phase;
use std::collections::VecDeque;
use std::time::Duration;

/// Tokens an engine generates a second and request, for the samples.
const TOKENS_PER_S: u64 = 30;

/// A process of the cluster.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub incarnation: Incarnation,
    pub id: InstanceId,
    pub node: NodeId,
    pub alive: bool,
    pub linked: bool,
    pub phase: Phase,
    /// Requests it computes.
    pub requests: u32,
    /// Requests that wait in it, oldest first.
    pub waiting: VecDeque<u64>,
    /// A hybrid engine that gave its slot to the ranks.
    pub paused: bool,
    /// It is there and does nothing any more.
    pub hangs: bool,
    pub(super) tokens: u64,
    pub(super) busy: Duration,
}

impl Cluster {
    pub(super) fn process(&self, incarnation: Incarnation) -> Option<&Process> {
        let place = usize::try_from(incarnation.0).ok()?;
        self.processes.get(place)?.as_ref()
    }

    pub(super) fn process_mut(&mut self, incarnation: Incarnation) -> Option<&mut Process> {
        let place = usize::try_from(incarnation.0).ok()?;
        self.processes.get_mut(place)?.as_mut()
    }

    pub(super) fn alive(&self, incarnation: Incarnation) -> bool {
        self.process(incarnation).is_some_and(|p| p.alive)
    }

    /// It is there and does what it is told.
    pub(super) fn works(&self, incarnation: Incarnation) -> bool {
        self.process(incarnation)
            .is_some_and(|p| p.alive && !p.hangs)
    }

    /// A node is told to start a process; a dead one does not hear it.
    pub(super) fn spawn(&mut self, id: InstanceId, incarnation: Incarnation, node: NodeId) {
        let alive = self.machine_lives(node);
        let place = usize::try_from(incarnation.0).unwrap_or(0);
        if self.processes.len() <= place {
            self.processes.resize(place + 1, None);
        }
        self.processes[place] = Some(Process {
            incarnation,
            id,
            node,
            alive,
            linked: false,
            phase: Phase::Init,
            requests: 0,
            waiting: VecDeque::new(),
            paused: false,
            hangs: false,
            tokens: 0,
            busy: Duration::ZERO,
        });
        if !alive {
            // Nobody hears it there; whatever is found of it is true.
            self.struck(incarnation);
            if let Some(guard) = &mut self.guard {
                guard.ended(incarnation);
            }
            return;
        }
        self.lives.insert((id.role, id.index), incarnation);
        self.last_spawned[id.role as usize] = Some(self.now);
        let now = Some(self.now);
        if [Role::Trainer, Role::Agent].map(|r| self.last_spawned[r as usize]) == [now, now] {
            self.whole_start = now;
        }
        let pid = u32::try_from(incarnation.0).unwrap_or(u32::MAX);
        let spawned = Input::Role(incarnation, RoleEvent::Spawned { pid });
        self.after(Duration::ZERO, Event::Feed(Box::new(spawned)));
        self.after(Duration::ZERO, Event::Begin(incarnation));
    }

    /// By now it is known whether everything starts: then engines are made after the trainer.
    pub(super) fn begin(&mut self, incarnation: Incarnation) {
        let Some(role) = self.process(incarnation).map(|p| p.id.role) else {
            return;
        };
        let timing = &self.plan.timing;
        // The first start is no restart.
        let again = self.whole_start == Some(self.now) && self.now > super::DAWN;
        let anew = if again { timing.anew } else { Duration::ZERO };
        if role.is_engine() && self.all_start_now() {
            return self.after_trainer.push(incarnation);
        }
        self.after(anew + self.start_of(role), Event::Link(incarnation));
    }

    /// How long one of a role takes from its start to its link.
    pub(super) fn start_of(&self, role: Role) -> Duration {
        let timing = &self.plan.timing;
        match role {
            Role::Trainer => timing.trainer_start,
            Role::Rollout | Role::Hybrid => timing.engine_start,
            Role::Agent => timing.agent_start,
        }
    }

    pub(super) fn link(&mut self, incarnation: Incarnation) {
        if !self.works(incarnation) || self.core.is_current(incarnation).is_none() {
            return;
        }
        if let Some(process) = self.process_mut(incarnation) {
            process.linked = true;
        }
        let hello = Hello::default();
        self.feed(Input::Role(incarnation, RoleEvent::Attached { hello }));
        let rank = self.process(incarnation).map(|p| p.id.role) == Some(Role::Trainer);
        if rank && !self.after_trainer.is_empty() && self.gang_is_linked() {
            for engine in std::mem::take(&mut self.after_trainer) {
                self.after(self.plan.timing.engine_start, Event::Link(engine));
            }
        }
    }

    /// Everything starts at this instant, the whole gang with it. Where a rank has no machine yet, engines do
    /// not wait for what may take days.
    fn all_start_now(&self) -> bool {
        self.heard.is_none()
            && self.whole_start == Some(self.now)
            && self.gang_is(|process| process.alive)
    }

    fn gang_is_linked(&self) -> bool {
        self.gang_is(|process| process.alive && process.linked)
    }

    fn gang_is(&self, so: impl Fn(&Process) -> bool) -> bool {
        let each = |index| {
            let role = Role::Trainer;
            let life = self.life(InstanceId { role, index });
            let process = life.and_then(|life| self.process(life));
            process.is_some_and(&so)
        };
        (0..self.plan.config.ranks).all(each)
    }

    /// A process ends; the daemon hears of it unless it did it, or died too.
    pub(super) fn end(&mut self, incarnation: Incarnation, tell: bool) {
        let Some(process) = self.process_mut(incarnation).filter(|p| p.alive) else {
            return;
        };
        process.alive = false;
        let id = process.id;
        if id.role.is_engine() {
            self.break_requests_of(incarnation);
        }
        self.wires_broken(incarnation, id);
        if let Some(guard) = &mut self.guard {
            guard.ended(incarnation);
        }
        if tell {
            let input = Input::Role(
                incarnation,
                RoleEvent::Exited {
                    at: Some(self.now),
                    exit: Exit::Signal(9),
                    detail: String::new(),
                },
            );
            self.after(self.plan.timing.exit_seen, Event::Feed(Box::new(input)));
        }
    }

    /// Reports a phase, if it is another.
    pub(super) fn enter(&mut self, incarnation: Incarnation, phase: Phase, step: Step) {
        let works = |p: &&mut Process| p.alive && !p.hangs;
        let Some(process) = self.process_mut(incarnation).filter(works) else {
            return;
        };
        if std::mem::replace(&mut process.phase, phase) == phase {
            return;
        }
        self.feed(Input::Role(
            incarnation,
            RoleEvent::PhaseChanged { phase, step },
        ));
    }

    /// Everybody's activity since the last time.
    pub(super) fn sample(&mut self) {
        let every = self.plan.samples;
        for place in 1..self.processes.len() {
            let there = |p: &&mut Process| p.alive && p.linked;
            let Some(process) = self.processes[place].as_mut().filter(there) else {
                continue;
            };
            if !process.hangs {
                process.busy += match process.phase.is_trainer_compute() {
                    true => every,
                    false => every / 100,
                };
                process.tokens += u64::from(process.requests) * every.as_secs() * TOKENS_PER_S;
            }
            let sample = Sample {
                busy: process.busy,
                tokens_total: process.tokens,
                running: process.requests,
                ..Sample::default()
            };
            let incarnation = process.incarnation;
            self.feed(Input::Role(incarnation, RoleEvent::Sampled { sample }));
        }
        self.after(every, Event::Samples);
    }
}
