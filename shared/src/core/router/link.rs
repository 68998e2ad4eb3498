//! What processes report of their life: spawned, linked, unlinked, phases and samples.
use crate::core::detect::{health_probe, phase_overrun};
use crate::core::gang::Stage;
use crate::core::output::Severity;
use crate::core::roster::instances::Current;
use crate::core::{Core, Hello, Sample};
use crate::ids::{Role, Step};
use crate::phase::Phase;

impl Core {
    pub(in crate::core) fn on_spawned(&mut self, current: Current, pid: u32) {
        let i = self.s.roster.of_mut(current);
        let rules = &self.config.rules;
        let until = self.now + rules.attach_overdue.window.of(i.id().role);
        i.spawned(pid, until, self.now);
        self.mark_spawned();
    }

    pub(in crate::core) fn on_attached(&mut self, current: Current, hello: &Hello) {
        let now = self.now;
        let Current {
            id, incarnation, ..
        } = current;
        let i = self.s.roster.of_mut(current);
        let again = i.was_attached();
        i.greet(now);
        if !self.s.proven.contains(&id.role) {
            self.s.proven.push(id.role);
        }
        let verb = if again { "linked again" } else { "attached" };
        self.event(
            Severity::Info,
            "attached",
            Some(id),
            format!("{id} {incarnation} {verb}"),
        );
        if !again {
            // Whoever links for the first time is in its `init`: what waits for that comes before
            // anything that it is told to do.
            self.spring(current);
        }
        match id.role {
            Role::Trainer => self.on_rank_attached(hello, again),
            Role::Hybrid | Role::Rollout => {
                if !again {
                    let (roster, cx) = self.roster();
                    health_probe::begin(&cx, roster.of_mut(current));
                }
                let (weights, mut cx) = self.weights();
                weights.attached(&mut cx, id, hello.version);
            }
            Role::Agent => {
                let last = self.s.orders.last_to_begin(&self.config);
                let (work, mut cx) = self.work();
                let held = &hello.leases;
                work.requests
                    .reconcile(&mut cx, (incarnation, id), held, last);
            }
        }
        self.armory().hand_over_again(current);
    }

    /// A rank that links again may have lost the call it was given with its link.
    fn on_rank_attached(&mut self, hello: &Hello, again: bool) {
        if again && self.s.gang.stage() == Stage::Ready && hello.step.is_none() {
            // The record that it was restored outlived the fact: restore it (again).
            self.s.gang.lost_its_state();
            return;
        }
        self.derive();
        if again && self.started && self.gang_attached() {
            self.call_gang();
        }
    }

    pub(in crate::core) fn on_detached(&mut self, current: Current) {
        let rules = &self.config.rules;
        let until = self.now + rules.link_lost.window.of(current.id.role);
        if self.config.mutant(crate::core::Mutation::LeaseTwice) {
            let (work, cx) = self.work();
            work.requests.void(&cx, current.incarnation);
        }
        self.s.roster.of_mut(current).link_broke(until);
    }

    pub(in crate::core) fn on_phase(&mut self, current: Current, phase: Phase, step: Step) {
        let now = self.now;
        let i = self.s.roster.instances().of(current);
        let (role, left, took) = (i.id().role, i.phase(), now.since(i.phase_since()));
        let changes = (i.phase(), i.phase_step()) != (phase, step);
        let i = self.s.roster.enter(current, phase, step, now);
        let (id, trains) = (
            i.id(),
            i.id().role == Role::Trainer && phase.is_trainer_compute(),
        );
        if trains {
            // A gang that is being restored computes nothing new: it trains committed steps again.
            let again = self.s.gang.stage() == Stage::Restoring;
            // One with a loop of its own is in it as soon as it has its state, before all of them have.
            if !(again && phase == Phase::Loop) {
                self.mark(id, if again { "replay" } else { "compute" });
            }
        }
        if changes {
            phase_overrun::learn(&mut self.s, now, role, left, took);
        }
        self.spring(current);
    }

    pub(in crate::core) fn on_sample(&mut self, current: Current, sample: Sample) {
        let now = self.now;
        if sample.running == 0 {
            self.s.work.rollouts.seen_idle(current.incarnation);
        }
        let tokens = self.s.roster.instances().of(current).sample().tokens_total;
        let i = self.s.roster.measure(current, sample, now);
        if i.sample().tokens_total > tokens && i.id().role.is_engine() {
            // Tokens are useful work: the budget of restarts in a row begins anew, and a suspect
            // that generates is none.
            if i.has_failed() {
                self.s.roster.of_mut(current).succeeded();
            }
            let (roster, cx) = self.roster();
            health_probe::generates(&cx, roster.of_mut(current));
        }
    }
}
