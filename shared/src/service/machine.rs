//! All services of a job together: who may start, and whether the job has to wait.
use super::instance::{Instance, State, With};
use super::plan::{Plan, Spec};
use super::{Effect, Event, ServiceId};
use crate::ids::Incarnation;
use crate::job::Needed;
use crate::time::Time;
use crate::wire::ServiceState;
use std::collections::VecDeque;

/// The services of a job. See the module's doc for how it is driven.
#[derive(Clone, Debug)]
pub struct Services {
    plan: Plan,
    /// Those of `plan.services`, service by service.
    instances: Vec<(usize, Instance)>,
    last_life: u64,
    stage: Stage,
    roles_started: bool,
    held: bool,
    out: VecDeque<Effect>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Before,
    Wanted,
    Over,
}

/// An instance as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceView {
    /// Which.
    pub id: ServiceId,
    /// How it is.
    pub state: ServiceState,
    /// When it came into that state.
    pub since: Time,
    /// Its present life, or its last one; 0: none yet.
    pub life: Incarnation,
    /// How often it was started again.
    pub restarts: u32,
    /// Why its last life ended, or empty.
    pub reason: String,
    /// What its absence does to the job.
    pub needed: Needed,
}

impl Services {
    /// Of a plan; lives are numbered from `last_life` + 1.
    pub fn new(plan: Plan, last_life: u64) -> Self {
        let each = plan.services.iter().enumerate();
        let of = |(at, spec): (usize, &Spec)| {
            let indices = 0..spec.replicas;
            let instance = |index| (at, Instance::new(&spec.name, index));
            indices.map(instance).collect::<Vec<_>>()
        };
        let instances = each.flat_map(of).collect();
        Self {
            plan,
            instances,
            last_life,
            stage: Stage::Before,
            roles_started: false,
            held: false,
            out: VecDeque::new(),
        }
    }

    /// Takes one event that happened at `now`.
    pub fn handle(&mut self, now: Time, event: Event) {
        if self.stage == Stage::Over {
            return;
        }
        match event {
            Event::Adopted { id, life, up } => self.on_adopted(now, &id, life, up),
            Event::Begin => self.stage = Stage::Wanted,
            Event::RolesStarted => self.roles_started = true,
            Event::NotStarted { life, reason } => {
                self.with_life(now, life, |i, with| i.on_exited(reason, with));
            }
            Event::Exited { life, how } => {
                self.with_life(now, life, |i, with| i.on_exited(how, with));
            }
            Event::Probed { life, ok } => {
                self.with_life(now, life, |i, with| i.on_probed(ok, with));
            }
            Event::Timeout => {}
            Event::End => {
                self.stage = Stage::Over;
                self.out.clear();
            }
        }
        if self.stage == Stage::Wanted {
            self.advance(now);
        }
    }

    /// The next thing to do, in order; none when all is done.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.out.pop_front()
    }

    /// When [`Event::Timeout`] is wanted at the latest.
    pub fn next_timeout(&self) -> Option<Time> {
        if self.stage != Stage::Wanted {
            return None;
        }
        let each = self.instances.iter();
        each.filter_map(|(_, i)| i.next_timeout()).min()
    }

    /// Whether the job has to wait.
    pub fn holds(&self) -> bool {
        self.held
    }

    /// Every instance, in the order in which they start.
    pub fn view(&self) -> Vec<ServiceView> {
        let view = |(at, i): &(usize, Instance)| ServiceView {
            id: i.id.clone(),
            state: i.shown(),
            since: i.since,
            life: i.life,
            restarts: i.restarts,
            reason: i.reason.clone(),
            needed: self.plan.services[*at].needed,
        };
        self.instances.iter().map(view).collect()
    }

    fn on_adopted(&mut self, now: Time, id: &ServiceId, life: Incarnation, up: bool) {
        self.last_life = self.last_life.max(life.0);
        let at = self.instances.iter().position(|(_, i)| i.id == *id);
        if let Some(at) = at {
            self.with(now, at, |instance, with| instance.adopt(life, up, with));
        }
    }

    /// What is heard of a life that is over changes nothing.
    fn with_life(
        &mut self,
        now: Time,
        life: Incarnation,
        change: impl FnOnce(&mut Instance, &mut With<'_>),
    ) {
        let mut lives = self.instances.iter();
        let current = lives.position(|(_, i)| i.life == life && i.lives());
        if let Some(at) = current {
            self.with(now, at, change);
        }
    }

    fn with(&mut self, now: Time, at: usize, change: impl FnOnce(&mut Instance, &mut With<'_>)) {
        let (service, instance) = &mut self.instances[at];
        let mut with = With {
            now,
            spec: &self.plan.services[*service],
            budgets: &self.plan.budgets,
            out: &mut self.out,
        };
        change(instance, &mut with);
    }

    fn advance(&mut self, now: Time) {
        for at in 0..self.instances.len() {
            self.with(now, at, Instance::on_time);
            if self.may_start(now, at) {
                self.last_life += 1;
                let life = Incarnation(self.last_life);
                self.with(now, at, |instance, with| instance.start(life, with));
                // Its first question.
                self.with(now, at, Instance::on_time);
            }
        }
        self.settle_hold();
    }

    fn may_start(&self, now: Time, at: usize) -> bool {
        let (service, instance) = &self.instances[at];
        match instance.state {
            State::Waiting => {
                let ties = &self.plan.services[*service].ties;
                let roles = !ties.after_roles || self.roles_started;
                roles && ties.after.iter().all(|name| self.is_settled(name))
            }
            State::Restarting { at } => at <= now,
            _ => false,
        }
    }

    /// Whether those that start after a service may start.
    fn is_settled(&self, name: &str) -> bool {
        let of = |(at, _): &&(usize, Instance)| self.plan.services[*at].name == name;
        let mut of_it = self.instances.iter().filter(of);
        of_it.all(|(_, i)| i.is_up() || i.state == State::Down)
    }

    /// Whether the job has to wait for an instance.
    fn is_missed(&self, (at, instance): &(usize, Instance)) -> bool {
        let spec = &self.plan.services[*at];
        let ties = &spec.ties;
        if instance.is_up() {
            return false;
        }
        match (spec.needed, self.roles_started) {
            // What waits for the job's roles cannot be waited for by them.
            (_, false) if ties.after_roles => false,
            (Needed::Degrade, false) => ties.before_roles && !instance.was_tried(),
            (_, false) => true,
            (Needed::Wait, true) => !ties.after_roles || instance.was_up,
            (_, true) => false,
        }
    }

    fn settle_hold(&mut self) {
        let missed = self.instances.iter().find(|i| self.is_missed(i));
        let missed = missed.map(|(_, i)| format!("the job waits for {} ({})", i.id, i.shown()));
        match (missed, self.held) {
            (Some(reason), false) => {
                self.held = true;
                self.out.push_back(Effect::Hold { reason });
            }
            (None, true) => {
                self.held = false;
                self.out.push_back(Effect::Release);
            }
            _ => {}
        }
    }
}
