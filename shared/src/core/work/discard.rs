//! Policy `task`, the baseline: a fault costs the rollout work of every uncommitted batch. Trajectories
//! under way and those that finished go back to their prompts and are generated again, as they are
//! where rollouts live in the process that restarts. Counted, and subtracted from goodput.
//!
//! The record comes before anything that follows from it, and whoever stores turns takes the leases
//! away first: no late word of an agent worker brings back what was thrown away. I-2 holds under
//! policy `role`; here it is given up on purpose.
use crate::core::Core;
use crate::core::config::Policy;
use crate::core::output::{Output, Record, Severity};
use crate::ids::TrajectoryId;

impl Core {
    /// Throws away what was generated and not consumed, if that is what a task restart costs.
    pub(in crate::core) fn discard_generated(&mut self) {
        if self.config.policy != Policy::Task {
            return;
        }
        for waste in self
            .s
            .ledger
            .generation_lost(self.now, self.trainer_share())
        {
            self.out.push_back(Output::Record(Record::Interval(waste)));
        }
        let lost: Vec<TrajectoryId> = self.s.trajectories.discard();
        if lost.is_empty() {
            return;
        }
        self.s.discarded += lost.len() as u64;
        self.s.finished_since = 0;
        let count = lost.len();
        let text = format!("{count} trajectories are thrown away and generated again");
        self.event(Severity::Warn, "discarded", None, text);
        let trajectories = lost;
        self.out
            .push_back(Output::Record(Record::Discarded { trajectories }));
    }
}
