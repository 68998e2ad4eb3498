//! The trainer gang: restore, publish, prepare, train, commit (the crate's module doc draws the
//! machine; `context` says when its slots are its own).
//!
//! A call is issued when the stage before it is over and every rank is attached; it is over when the
//! present generation (the `door` sees to that) answers exactly this call, so that late and repeated
//! answers change nothing (I-1). The step is committed by a durable record before anything that follows
//! from it leaves (I-3), publishing above all (I-5).
pub(in crate::core) mod context;
pub(in crate::core) mod own_loop;
pub(in crate::core) mod prepare;

use crate::core::detect::numeric::not_a_number;
use crate::core::gang::prepare::Prepared;
use crate::core::output::{Outcome, Output, Record, Severity};
use crate::core::state::Stage;
use crate::core::{Core, Mutation, StepMetrics};
use crate::ids::{Generation, Incarnation, InstanceId, Role, Step, WeightVersion};

impl Core {
    /// The present lives of all ranks, in rank order.
    pub(in crate::core) fn ranks(&self) -> Vec<Incarnation> {
        self.s
            .instances
            .role(Role::Trainer)
            .map(|i| i.incarnation)
            .collect()
    }

    /// Whether every rank can be commanded and none is about to be killed.
    pub(in crate::core) fn gang_attached(&self) -> bool {
        let sound = self.index_now().counts(Role::Trainer).sound;
        let missing = u32::from(self.config.mutant(Mutation::CallHalfGang));
        sound + missing >= self.s.instances.count(Role::Trainer)
    }

    /// Issues the call that is due, if one is.
    pub(in crate::core) fn advance_gang(&mut self) {
        self.sync();
        if !self.gang_attached() {
            return;
        }
        match self.s.gang.stage {
            Stage::Forming => {
                self.s.gang.stage = Stage::Restoring;
                self.s.gang.restore_step = self.s.committed;
                self.call_again();
            }
            Stage::Ready if self.must_publish(self.due_version()) => {
                if !self.s.weights.use_buffer_of(self.due_version()) {
                    self.s.gang.stage = Stage::Publishing(self.due_version());
                    self.call_again();
                }
            }
            Stage::Ready if self.s.committed.0 >= self.config.steps => {
                self.finish(Outcome::Completed);
            }
            Stage::Ready => {
                let step = self.s.committed.next();
                let early = self.config.mutant(Mutation::StepBeforeSlots);
                let have = early || self.ranks_have_their_slots();
                if !have || step > self.last_to_begin() {
                    return;
                }
                let own = self.config.own_loop.is_some();
                match own || self.s.work.requests.table().is_complete(step) {
                    true => self.begin_step(step),
                    false => self.prepare(step),
                }
            }
            Stage::Restoring | Stage::Publishing(_) | Stage::Preparing(_) | Stage::Training(_) => {}
        }
    }

    pub(in crate::core) fn due_version(&self) -> WeightVersion {
        WeightVersion(self.s.committed.0)
    }

    fn begin_step(&mut self, step: Step) {
        if self.config.own_loop.is_none() && self.s.work.requests.table().trained(step).is_empty() {
            let reason = format!(
                "every trajectory of step {step} took engines along and was set aside: there is \
                 nothing to train on"
            );
            return self.finish(Outcome::Failed { reason });
        }
        self.s.gang.stage = Stage::Training(step);
        if self.s.gang.prepared == Prepared::default() {
            self.step_begins();
        }
        self.call_again();
    }

    /// What the ranks compute from now on is wasted if the step has to be done again.
    pub(in crate::core) fn step_begins(&mut self) {
        if let Some(closed) = self.s.ledger.step_begins(self.now) {
            self.out.push(Output::Record(Record::Interval(closed)));
        }
    }

    /// Issues the call of the present stage, for the first time or again.
    pub(in crate::core) fn call_again(&mut self) {
        let (generation, ranks) = (self.s.gang.generation, self.ranks());
        self.s.gang.called_at = self.now;
        let call = match self.s.gang.stage {
            Stage::Restoring => Output::Restore {
                generation,
                ranks,
                step: self.s.gang.restore_step,
            },
            Stage::Publishing(version) => Output::Publish {
                generation,
                ranks,
                version,
            },
            Stage::Preparing(step) => self.prepare_call(step),
            Stage::Training(step) => {
                let trajectories = self.s.work.requests.table().trained(step);
                Output::TrainStep {
                    generation,
                    ranks,
                    step,
                    trajectories,
                }
            }
            Stage::Forming | Stage::Ready => return,
        };
        self.out.push(call);
    }

    pub(in crate::core) fn on_restored(&mut self, step: Step) {
        let gang = &mut self.s.gang;
        if (Stage::Restoring, step) != (gang.stage, gang.restore_step) {
            return;
        }
        gang.stage = Stage::Ready;
        gang.failed_restarts = 0;
        self.s.restored = true;
        self.mark(Self::any_rank(), "restored");
    }

    pub(in crate::core) fn on_published(&mut self, version: WeightVersion, bytes: u64) {
        let gang = &mut self.s.gang;
        if gang.stage != Stage::Publishing(version) {
            return;
        }
        gang.stage = Stage::Ready;
        gang.serves = Some(version);
        let (weights, mut cx) = self.weights();
        weights.published_as(&mut cx, version, bytes);
        self.mark(Self::any_rank(), "published");
    }

    /// The gang did useful work.
    pub(in crate::core) fn gang_succeeded(&mut self) {
        let causes = self.s.gang.causes.clone();
        self.s.gang.succeeded();
        self.s.task_restarts = 0;
        if self.config.mutant(Mutation::CauseOutlivesWork) {
            self.s.gang.causes = causes;
        }
    }

    pub(in crate::core) fn on_step_done(
        &mut self,
        from: Generation,
        step: Step,
        metrics: StepMetrics,
    ) {
        let asked = self.s.gang.stage == Stage::Training(step)
            || self.config.mutant(Mutation::ConsumeTwice);
        if !asked {
            return;
        }
        if let Some(what) = not_a_number(&metrics) {
            return self.numeric(Self::any_rank(), format!("step {step} brought {what}"));
        }
        let trajectories = match self.config.own_loop {
            Some(_) => Some(Vec::new()),
            None => self.s.work.requests.table().complete(step),
        };
        let Some(trajectories) = trajectories else {
            return;
        };
        self.compare_ranks(step);
        let gang = &mut self.s.gang;
        gang.stage = Stage::Ready;
        // Where a state is the program's own, its first step may be what it did before: no progress.
        let own_state = self.config.own_loop.is_some_and(|own| !own.keeps_state);
        let progress = gang.stepped || !own_state;
        (gang.stepped, gang.fresh, gang.faults_in_step) = (true, false, 0);
        if progress {
            self.gang_succeeded();
        }
        self.s.committed = step;
        if self.config.mutant(Mutation::PublishBeforeCommit) {
            self.s.gang.stage = Stage::Publishing(self.due_version());
            self.call_again();
        }
        self.s.gang.prepared = Prepared::default();
        self.s.deaths.consume(step);
        let (work, cx) = self.work();
        let ahead = work.requests.committed(&cx, step);
        if let Some(closed) = self.s.ledger.step_kept(self.now, ahead) {
            self.out.push(Output::Record(Record::Interval(closed)));
        }
        self.s.work.rewards.push(metrics.reward);
        if let Some(before) = self.s.committed_at.replace(self.now) {
            self.s.step_duration = self.now.since(before);
        }
        let record = Record::Committed {
            step,
            generation: from,
            trajectories,
            metrics,
        };
        self.out.push(Output::Record(record));
        let (reward, loss) = (metrics.reward, metrics.loss);
        let text = match self.config.own_loop {
            _ if !metrics.are_told() => format!("step {step} committed"),
            Some(_) => format!("step {step} committed: loss {loss:.4}"),
            None => format!("step {step} committed: reward {reward:.3}, loss {loss:.4}"),
        };
        self.event(Severity::Info, "step", None, text);
    }

    /// Rank 0 stands for the gang where no single rank is meant.
    pub(in crate::core) fn any_rank() -> InstanceId {
        InstanceId {
            role: Role::Trainer,
            index: 0,
        }
    }
}
