//! What counts against the gang, until it does useful work.
use super::{Gang, Stage};
use crate::core::config::CoreConfig;
use crate::core::mutation::Mutation;
use crate::core::recover::budget::FaultKind;
use crate::core::recover::cause::Causes;
use crate::core::recover::restart::FirstIteration;
use crate::time::Time;
use std::time::Duration;

impl Gang {
    /// Generations in a row that ended before they were restored.
    pub fn failed_restarts(&self) -> u32 {
        self.failed_restarts
    }

    /// Faults of restored gangs since the last committed step.
    pub fn faults_in_step(&self) -> u32 {
        self.faults_in_step
    }

    /// What its deaths came of, to be counted.
    pub fn causes_mut(&mut self) -> &mut Causes {
        &mut self.causes
    }

    /// Counts a fault, and says how many of this kind that makes in a row within this window.
    pub fn count_fault(&mut self, kind: FaultKind, window: Duration, now: Time) -> u32 {
        match self.is_restored() {
            true => self.faults_in_step += 1,
            false => self.failed_restarts += 1,
        }
        self.strikes.strike(kind, window, now)
    }

    /// It did useful work: what fails from now on is not in a row with what failed before.
    pub fn succeeded(&mut self, config: &CoreConfig) {
        self.failed_restarts = 0;
        self.strikes.clear();
        if !config.mutant(Mutation::CauseOutlivesWork) {
            self.causes.clear();
        }
    }

    /// The whole task is restarted: its ranks have their slots, and what failed until now is paid for.
    pub fn begin_task_again(&mut self, now: Time) {
        (self.context, self.context_since) = (super::Context::Training, now);
        (self.failed_restarts, self.faults_in_step) = (0, 0);
    }

    /// What the step of this generation is the first one of, until it is finished. A planned restart
    /// replaces no gang that failed: its first step is like any other.
    pub fn first_iteration(&self) -> Option<FirstIteration> {
        match (self.stepped, self.fresh, self.restarted) {
            (true, _, _) | (_, false, false) => None,
            (_, true, _) => Some(FirstIteration::OfJob),
            (_, false, true) => Some(FirstIteration::AfterRestart),
        }
    }

    /// Whether its program has been at its own loop for so long.
    pub fn ran(&self, long: Duration, now: Time) -> bool {
        matches!(self.stage, Stage::Training(_)) && now.since(self.called_at) > long
    }

    /// As if a generation before had finished a step.
    #[cfg(test)]
    pub fn pretend_stepped(&mut self) {
        self.fresh = false;
    }
}
