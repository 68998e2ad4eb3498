//! What the gang looks at of the others.
use crate::core::config::CoreConfig;
use crate::core::roster::instance::Instance;
use crate::core::roster::instances::Instances;
use crate::core::weights::Weights;
use crate::core::work::trajectories::Trajectories;
use crate::ids::{Incarnation, Role, Step, WeightVersion};

/// What the gang looks at of the others.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// The last committed step.
    pub committed: Step,
    /// The last step for which work may be begun: a job that is to pause begins none beyond it.
    pub last: Step,
    /// What of which batch is finished.
    pub batches: &'a Trajectories,
    /// What was published, and who still reads it.
    pub weights: &'a Weights,
    /// Its ranks, and who generates beside them.
    pub instances: &'a Instances,
}

impl Around<'_> {
    /// The present incarnations of all ranks, in rank order.
    pub fn ranks(&self) -> Vec<Incarnation> {
        let ranks = self.instances.role(Role::Trainer);
        ranks.map(|i| i.incarnation()).collect()
    }

    /// The version that belongs to the committed step.
    pub fn due_version(&self) -> WeightVersion {
        WeightVersion(self.committed.0)
    }

    /// Prompts of the next step's batch: one that is open keeps the shape it began with.
    pub fn prompts_of_next(&self, config: &CoreConfig) -> u32 {
        let open = self.batches.batch_prompts(self.committed.next().0);
        open.unwrap_or(config.prompts)
    }

    /// How many of them are finished.
    pub fn finished_of_next(&self) -> u32 {
        self.batches.finished_prompts(self.committed.next())
    }

    /// Whether enough of the next batch is finished for the ranks to have their slots.
    pub fn enough_is_finished(&self, config: &CoreConfig) -> bool {
        if self.committed.next().0 > config.steps {
            return true;
        }
        let prompts = f64::from(self.prompts_of_next(config));
        let finished = f64::from(self.finished_of_next());
        finished >= prompts || finished >= prompts * self.switching_point(config)
    }

    /// Without a rollout that has a slot of its own nobody would generate the rest.
    fn switching_point(&self, config: &CoreConfig) -> f64 {
        let mut rollouts = self.instances.role(Role::Rollout);
        match rollouts.any(Instance::has_process) || config.hybrids == 0 {
            true => config.switch_at,
            false => 1.0,
        }
    }
}
