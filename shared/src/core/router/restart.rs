//! Restart: what was decided (`recover/restart`) is carried out: who lives is killed, new incarnations are
//! issued, and what the old ones held goes on elsewhere.
use crate::core::output::{Outcome, Output, Record, Severity};
use crate::core::recover::restart::{Action, Plan};
use crate::core::roster::instance::Life;
use crate::core::roster::nodes::NodeState;
use crate::core::{Core, Mutation};
use crate::ids::{Generation, Incarnation, InstanceId, Role};
use std::time::Duration;

impl Core {
    /// First start of the job: every place, one generation.
    pub(in crate::core) fn spawn_everything(&mut self) {
        self.form_gang(false);
        let ids: Vec<_> = self.s.roster.instances().iter().map(|i| i.id()).collect();
        self.issue(&ids);
    }

    /// New lives: all numbers are on record before any process is started, in one go, so that the
    /// driver makes one durable write of it.
    pub(in crate::core) fn issue(&mut self, ids: &[InstanceId]) {
        let mut spawns = Vec::new();
        for &id in ids {
            let Some(slot) = self.house(id) else {
                self.make_homeless(id);
                continue;
            };
            let incarnation = self.s.roster.take_number();
            let generation = match id.role {
                Role::Trainer => self.s.gang.generation(),
                Role::Hybrid | Role::Rollout | Role::Agent => Generation(0),
            };
            let until = self.now + self.config.rules.attach_overdue.window.of(id.role);
            let lost = self.config.mutant(Mutation::QuarantineLost);
            let reborn = self.reborn(id, incarnation, generation);
            if let Some(i) = reborn {
                i.told_to_start(until);
                if lost {
                    i.quarantine(false);
                }
            }
            self.out.record(Record::Issued { id, incarnation });
            spawns.push(Output::Spawn {
                id,
                incarnation,
                generation,
                node: slot.node,
                slot,
                revision: self.revision_of(id.role),
            });
        }
        if self.config.mutant(Mutation::SkipRecord) {
            spawns
                .drain(..)
                .rev()
                .for_each(|spawn| self.out.push_first(spawn));
        }
        for spawn in spawns {
            self.out.push(spawn);
        }
        if ids.iter().any(|id| id.role == Role::Trainer) {
            self.rehouse_hybrids();
        }
    }

    /// No slot is free: the place waits for one.
    fn make_homeless(&mut self, id: InstanceId) {
        let (none, generation) = (Incarnation(0), self.s.gang.generation());
        let reborn = self.reborn(id, none, generation);
        if let Some(i) = reborn {
            i.wait_for_slot();
        }
        let text = format!("{id} waits for a slot");
        self.event(Severity::Warn, "slot", Some(id), text);
    }

    /// Does what was decided. `ended`: the life whose process is known to be gone.
    pub(in crate::core) fn carry_out(&mut self, plan: &Plan, ended: Option<Incarnation>) {
        let of = |core: &Self, role: Option<Role>| -> Vec<InstanceId> {
            let all = core.s.roster.instances().iter().map(|i| i.id());
            all.filter(|id| role.is_none_or(|r| r == id.role)).collect()
        };
        match plan.action {
            Action::RestartInstance => {
                self.renew(&[plan.who], ended, plan.wait);
            }
            Action::RestartGang => {
                self.lose_step();
                self.form_gang(true);
                self.renew(&of(self, Some(Role::Trainer)), ended, plan.wait);
            }
            Action::RestartTask => {
                self.lose_step();
                self.discard_generated();
                self.form_gang(true);
                self.s.gang.begin_task_again(self.now);
                self.renew(&of(self, None), ended, plan.wait);
            }
            Action::FailJob => self.finish(Outcome::Failed {
                reason: plan.why.clone(),
            }),
        }
    }

    /// Kills what lives of these places and starts new lives, at once the first time and after a
    /// backoff when restarts follow each other. Nobody waits for the old ones to be gone: they are
    /// fenced by their number (I-1).
    fn renew(&mut self, ids: &[InstanceId], ended: Option<Incarnation>, wait: Duration) {
        let retiring = |id: &InstanceId| {
            self.s
                .roster
                .instances()
                .get(*id)
                .is_some_and(|i| i.retiring())
        };
        let (going, ids): (Vec<_>, Vec<_>) = ids.iter().copied().partition(retiring);
        for id in going {
            self.gone_early(id, false);
        }
        let ids = ids.as_slice();
        for &id in ids {
            let restarted = self.s.recover.reason_to_replace(id, self.now);
            let Some(i) = self.s.roster.get_mut(id) else {
                continue;
            };
            let (old, alive) = (
                i.incarnation(),
                i.has_process() && ended != Some(i.incarnation()),
            );
            i.note_restart(restarted);
            let node = i.slot().map(|s| s.node);
            let there = node.and_then(|node| self.s.roster.nodes().get(node));
            // A lost node hears nothing; what it still runs is fenced when it comes back.
            if alive && there.is_none_or(|n| n.state == NodeState::Here) {
                let reason = format!("{id} {old} is replaced");
                self.note_leaving(id);
                self.out.push(Output::Kill {
                    id,
                    incarnation: old,
                    node,
                    reason,
                });
            }
            if old != Incarnation(0) {
                self.sweep(id, old);
            }
            self.forget_life(id, old);
            if let Some(i) = self.s.roster.get_mut(id) {
                // Whoever gets its slot in what follows has nobody to ask to end any more.
                i.wait_until(self.now);
            }
        }
        if wait == Duration::ZERO {
            return self.issue(ids);
        }
        let (until, generation) = (self.now + wait, self.s.gang.generation());
        for &id in ids {
            let reborn = self.reborn(id, Incarnation(0), generation);
            if let Some(i) = reborn {
                i.wait_until(until);
            }
        }
    }

    /// Asks a process to end gently; what it held goes on elsewhere. It is no fault.
    pub(in crate::core) fn retire(&mut self, id: InstanceId) {
        let Some(i) = self
            .s
            .roster
            .instances()
            .get(id)
            .filter(|i| i.has_process())
        else {
            return;
        };
        let incarnation = i.incarnation();
        self.note_leaving(id);
        // After a record: a daemon that dies in between must not take its end for a fault.
        self.note_revision(0);
        self.out.push(Output::Retire { incarnation });
        self.forget_life(id, incarnation);
    }

    /// Leases, routes and pulls of a life that is over are void.
    pub(in crate::core) fn forget_life(&mut self, id: InstanceId, old: Incarnation) {
        self.armory().disarm_dead(id, old);
        match id.role {
            Role::Trainer => {
                // Its timer is set by what is waited for now, so that none is left that falls for nothing.
                self.derive();
                self.s.weights.drop_pulls_from_trainer(&self.config);
            }
            Role::Hybrid | Role::Rollout => {
                self.s.work.rollouts.drop_rollout(old);
                self.derive();
                self.s.weights.drop_pulls_from(&self.config, old);
            }
            Role::Agent => {
                let (work, mut cx) = self.work();
                work.agent_is_gone(&mut cx, old);
            }
        }
    }

    /// Starts the lives whose backoff is over.
    pub(in crate::core) fn respawn_due(&mut self, fallen: &[InstanceId]) {
        let due = |life: Life| matches!(life, Life::Waiting { until } if until <= self.now);
        let instances = self.s.roster.instances();
        let waits = |id: &InstanceId| instances.get(*id).is_some_and(|i| due(i.life()));
        let ids = fallen.iter().copied().filter(waits);
        let retiring = |id: &InstanceId| instances.get(*id).is_some_and(|i| i.retiring());
        let (gone, ids): (Vec<_>, Vec<_>) = ids.partition(retiring);
        for id in gone {
            self.vacate(id);
        }
        if !ids.is_empty() {
            self.issue(&ids);
        }
    }

    /// The running step will be done again: its training so far was for nothing.
    fn lose_step(&mut self) {
        if !self.s.gang.has_begun_step() {
            return;
        }
        if self.config.own_loop.is_some_and(|own| !own.commits) {
            // Where its program begins again nobody else knows.
            return;
        }
        let share = self.s.trainer_share(&self.config);
        for waste in self.s.ledger.step_lost(self.now, share) {
            self.out.push(Output::Record(Record::Interval(waste)));
        }
    }
}
