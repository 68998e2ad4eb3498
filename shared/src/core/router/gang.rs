//! The gang (`core/gang`): it is shown the others, what is due of it is done, and what its answers mean is
//! told to the others.
use crate::core::detect::{numeric, straggler};
use crate::core::effects::Cx;
use crate::core::gang::{Around, Due, Gang, any_rank};
use crate::core::output::{Outcome, Output, Record, Severity};
use crate::core::roster::instances::Current;
use crate::core::roster::nodes::NodeState;
use crate::core::{Core, Mutation, StepMetrics};
use crate::ids::{Generation, InstanceId, Role, Step, TrajectoryId, WeightVersion};

impl Core {
    /// The gang, what it is given with whatever it is to take in, and what it looks at of the others.
    pub(in crate::core) fn gang(&mut self) -> (&mut Gang, Cx<'_>, Around<'_>) {
        let last = self.s.orders.last_to_begin(&self.config);
        let s = &mut self.s;
        let around = Around {
            committed: s.committed,
            last,
            batches: s.work.requests.table(),
            weights: &s.weights,
            instances: s.roster.instances(),
        };
        let cx = Cx {
            now: self.now,
            config: &self.config,
            out: &mut self.out,
        };
        (&mut s.gang, cx, around)
    }

    /// What the gang looks at of the others.
    pub(in crate::core) fn around_gang(&self) -> Around<'_> {
        Around {
            committed: self.s.committed,
            last: self.s.orders.last_to_begin(&self.config),
            batches: self.s.work.requests.table(),
            weights: &self.s.weights,
            instances: self.s.roster.instances(),
        }
    }

    /// Whether every rank can be commanded and none is about to be killed.
    pub(in crate::core) fn gang_attached(&self) -> bool {
        let sound = self.s.index_now().counts(Role::Trainer).sound;
        let missing = u32::from(self.config.mutant(Mutation::CallHalfGang));
        sound + missing >= self.s.roster.instances().count(Role::Trainer)
    }

    /// Whether it may be restarted without anything being done twice.
    pub(in crate::core) fn gang_is_at_boundary(&self) -> bool {
        let around = self.around_gang();
        self.s.gang.is_at_boundary(&self.config, &around)
    }

    /// A new generation. `restarted`: it replaces one that failed.
    pub(in crate::core) fn form_gang(&mut self, restarted: bool) {
        let generation = self.s.next_generation;
        self.s.next_generation = generation.next();
        self.s.gang.form(&self.config, generation, restarted);
    }

    /// Issues the call that is due, if one is.
    pub(in crate::core) fn advance_gang(&mut self) {
        self.derive();
        if !self.gang_attached() {
            return;
        }
        let (gang, cx, around) = self.gang();
        match gang.advance(cx.config, &around) {
            None => {}
            Some(Due::Over(outcome)) => self.finish(outcome),
            Some(Due::Call { begins_step }) => {
                if begins_step && let Some(closed) = self.s.ledger.step_begins(self.now) {
                    self.out.record(Record::Interval(closed));
                }
                self.call_gang();
            }
        }
    }

    /// Issues the call of the gang's stage, for the first time or again.
    pub(in crate::core) fn call_gang(&mut self) {
        let (gang, mut cx, around) = self.gang();
        gang.call(&mut cx, &around);
    }

    pub(in crate::core) fn on_restored(&mut self, step: Step) {
        if self.s.gang.restored(step) {
            self.s.restored = true;
            self.mark(any_rank(), "restored");
        }
    }

    pub(in crate::core) fn on_published(&mut self, version: WeightVersion, bytes: u64) {
        if !self.s.gang.published(version) {
            return;
        }
        let (weights, mut cx) = self.weights();
        weights.published_as(&mut cx, version, bytes);
        self.mark(any_rank(), "published");
    }

    pub(in crate::core) fn on_step_done(
        &mut self,
        from: Generation,
        step: Step,
        metrics: StepMetrics,
    ) {
        if !self.s.gang.is_training(&self.config, step) {
            return;
        }
        if let Some(what) = numeric::not_a_number(&metrics) {
            let reason = format!("step {step} brought {what}");
            return self.fault(numeric::verdict(any_rank(), reason));
        }
        let trajectories = match self.config.own_loop {
            Some(_) => Some(Vec::new()),
            None => self.s.work.requests.table().complete(step),
        };
        let Some(trajectories) = trajectories else {
            return;
        };
        let (roster, mut cx) = self.roster();
        straggler::compare(&mut cx, roster, step);
        let (gang, mut cx, around) = self.gang();
        if gang.step_done(&mut cx, &around, step) {
            self.s.recover.gang_succeeded();
        }
        self.commit(from, step, trajectories, metrics);
    }

    fn commit(
        &mut self,
        from: Generation,
        step: Step,
        trajectories: Vec<TrajectoryId>,
        metrics: StepMetrics,
    ) {
        self.s.committed = step;
        self.s.recover.deaths.consume(step);
        let (work, cx) = self.work();
        let provenance = Some(work.requests.table().provenance(&trajectories));
        let ahead = work.requests.committed(&cx, step);
        if let Some(closed) = self.s.ledger.step_kept(self.now, ahead) {
            self.out.record(Record::Interval(closed));
        }
        self.s.work.rewards.push(metrics.reward);
        if let Some(before) = self.s.committed_at.replace(self.now) {
            self.s.step_duration = self.now.since(before);
        }
        self.out.record(Record::Committed {
            step,
            generation: from,
            trajectories,
            metrics,
            provenance,
        });
        let (reward, loss) = (metrics.reward, metrics.loss);
        let text = match self.config.own_loop {
            _ if !metrics.are_told() => format!("step {step} committed"),
            Some(_) => format!("step {step} committed: loss {loss:.4}"),
            None => format!("step {step} committed: reward {reward:.3}, loss {loss:.4}"),
        };
        self.event(Severity::Info, "step", None, text);
    }

    /// The gang did useful work, though no step says so.
    pub(in crate::core) fn gang_succeeded(&mut self) {
        self.s.gang.succeeded(&self.config);
        self.s.recover.gang_succeeded();
    }

    /// Every program of the gang ended because there is nothing left to do.
    pub(in crate::core) fn on_trainer_over(&mut self) {
        if self.config.own_loop.is_some() && self.is_running() {
            self.finish(Outcome::Completed);
        }
    }

    /// Does what the finished prompts ask for, and tells the engines.
    pub(in crate::core) fn advance_context(&mut self) {
        if self.config.hybrids == 0 {
            return;
        }
        self.derive();
        let engines = self.s.roster.counts(Role::Hybrid);
        let (gang, mut cx, around) = self.gang();
        gang.switch(&mut cx, &around, (engines.unpaused, engines.unrolling));
        self.derive();
        while let Some(id) = self.s.roster.index().to_tell() {
            self.command_engine(id);
            self.derive();
        }
    }

    fn command_engine(&mut self, id: InstanceId) {
        let current = self.s.weights.is_current(id);
        let gang = &self.s.gang;
        let Some(i) = self.s.roster.get_mut(id) else {
            return;
        };
        let (engine, since) = (i.incarnation(), self.now);
        let due = gang.due_command(i, current);
        match due {
            Some(true) => {
                i.told_to_resume(since);
                self.out.push(Output::Resume { engine });
            }
            Some(false) => {
                i.told_to_pause(since);
                self.out.push(Output::Pause { engine });
            }
            None => {}
        }
    }

    /// An engine answered a command, or refused it.
    pub(in crate::core) fn on_switched(&mut self, engine: Current, paused: bool, ok: bool) {
        let i = self.s.roster.of_mut(engine);
        if !i.turn().awaits(paused) || i.condemned().is_some() {
            return;
        }
        match ok {
            true => i.has_switched(paused, self.now),
            false => self.switch_failed(engine.id, "it refused"),
        }
    }

    /// An engine that is to end computes until it does: its slot is not its rank's before. Nobody hears
    /// of an end on a node that is lost, and no rank computes there.
    pub(in crate::core) fn note_leaving(&mut self, id: InstanceId) {
        let slot = self.s.roster.instances().get(id).and_then(|i| i.slot());
        let node = slot.and_then(|slot| self.s.roster.nodes().get(slot.node));
        if node.is_none_or(|node| node.state != NodeState::Here) {
            return;
        }
        let until = self.now + self.config.rules.context_switch.window.of(id.role);
        if let Some(i) = self.s.roster.get_mut(id) {
            i.note_leaving(until);
        }
    }
}
