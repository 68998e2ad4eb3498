//! The gang's calls, and what comes of their answers.
use super::{Around, Gang, Stage};
use crate::core::config::CoreConfig;
use crate::core::effects::Cx;
use crate::core::gang::prepare::Prepared;
use crate::core::mutation::Mutation;
use crate::core::output::{Outcome, Output};
use crate::ids::{Step, WeightVersion};

/// What is due of the gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// The call of its stage is to be issued ([`Gang::call`]).
    Call {
        /// What the ranks compute from now on is wasted if the step has to be done again.
        begins_step: bool,
    },
    /// The job is over.
    Over(Outcome),
}

impl Due {
    /// A call that begins no step.
    const CALL: Option<Self> = Some(Due::Call { begins_step: false });
}

impl Gang {
    /// Goes on to what is due, with every rank attached.
    pub fn advance(&mut self, config: &CoreConfig, around: &Around<'_>) -> Option<Due> {
        match self.stage {
            Stage::Forming => {
                self.stage = Stage::Restoring;
                self.restore_step = around.committed;
                Due::CALL
            }
            Stage::Ready if self.must_publish(config, around) => {
                let version = around.due_version();
                if around.weights.use_buffer_of(version) {
                    return None;
                }
                self.stage = Stage::Publishing(version);
                Due::CALL
            }
            Stage::Ready if around.committed.0 >= config.steps => {
                Some(Due::Over(Outcome::Completed))
            }
            Stage::Ready => self.go_on(config, around),
            Stage::Restoring | Stage::Publishing(_) | Stage::Preparing(_) | Stage::Training(_) => {
                None
            }
        }
    }

    /// Whether it may be restarted without anything being done twice.
    pub fn is_at_boundary(&self, config: &CoreConfig, around: &Around<'_>) -> bool {
        match self.stage {
            Stage::Forming | Stage::Restoring => true,
            Stage::Ready => {
                !self.must_publish(config, around) && self.prepared == Prepared::default()
            }
            // Its program tells no boundary, now or ever.
            Stage::Training(_) if config.own_loop.is_some_and(|own| !own.commits) => true,
            Stage::Publishing(_) | Stage::Preparing(_) | Stage::Training(_) => {
                config.mutant(Mutation::ChangeMidStep)
            }
        }
    }

    fn go_on(&mut self, config: &CoreConfig, around: &Around<'_>) -> Option<Due> {
        let step = around.committed.next();
        let early = config.mutant(Mutation::StepBeforeSlots);
        let have = early || self.ranks_have_their_slots();
        if !have || step > around.last {
            return None;
        }
        let own = config.own_loop.is_some();
        match own || around.batches.is_complete(step) {
            true => Some(self.begin_step(config, around, step)),
            false => self.prepare(config, around, step),
        }
    }

    fn begin_step(&mut self, config: &CoreConfig, around: &Around<'_>, step: Step) -> Due {
        if config.own_loop.is_none() && around.batches.trained(step).is_empty() {
            let reason = format!(
                "every trajectory of step {step} took engines along and was set aside: there is \
                 nothing to train on"
            );
            return Due::Over(Outcome::Failed { reason });
        }
        self.stage = Stage::Training(step);
        Due::Call {
            begins_step: self.prepared == Prepared::default(),
        }
    }

    /// Issues the call of the present stage, for the first time or again.
    pub fn call(&mut self, cx: &mut Cx<'_>, around: &Around<'_>) {
        let (generation, ranks) = (self.generation, around.ranks());
        self.called_at = cx.now;
        let call = match self.stage {
            Stage::Restoring => Output::Restore {
                generation,
                ranks,
                step: self.restore_step,
            },
            Stage::Publishing(version) => Output::Publish {
                generation,
                ranks,
                version,
            },
            Stage::Preparing(step) => Output::Prepare {
                generation,
                ranks,
                step,
                trajectories: self.asked_for(cx.config, around, step),
            },
            Stage::Training(step) => Output::TrainStep {
                generation,
                ranks,
                step,
                trajectories: around.batches.trained(step),
            },
            Stage::Forming | Stage::Ready => return,
        };
        cx.out.push(call);
    }

    /// Whether the answer was awaited.
    pub fn restored(&mut self, step: Step) -> bool {
        if (Stage::Restoring, step) != (self.stage, self.restore_step) {
            return false;
        }
        self.stage = Stage::Ready;
        self.failed_restarts = 0;
        true
    }

    /// Whether the answer was awaited.
    pub fn published(&mut self, version: WeightVersion) -> bool {
        if self.stage != Stage::Publishing(version) {
            return false;
        }
        self.stage = Stage::Ready;
        self.serves = Some(version);
        true
    }

    /// Whether an answer to this step is awaited.
    pub fn is_training(&self, config: &CoreConfig, step: Step) -> bool {
        self.stage == Stage::Training(step) || config.mutant(Mutation::ConsumeTwice)
    }

    /// A step is done, and about to be committed. Whether it was progress.
    pub fn step_done(&mut self, cx: &mut Cx<'_>, around: &Around<'_>, step: Step) -> bool {
        self.stage = Stage::Ready;
        // Where a state is the program's own, its first step may be what it did before: no progress.
        let own_state = cx.config.own_loop.is_some_and(|own| !own.keeps_state);
        let progress = self.stepped || !own_state;
        (self.stepped, self.fresh, self.faults_in_step) = (true, false, 0);
        if progress {
            self.succeeded(cx.config);
        }
        if cx.config.mutant(Mutation::PublishBeforeCommit) {
            self.stage = Stage::Publishing(WeightVersion(step.0));
            self.call(cx, around);
        }
        self.prepared = Prepared::default();
        progress
    }

    /// A rank that was restored says that it has no state: the record of it outlived the fact.
    pub fn lost_its_state(&mut self) {
        self.stage = Stage::Forming;
    }
}
