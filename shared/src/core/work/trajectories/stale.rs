//! Trajectories whose weights are too old to train on (`batch.max_staleness`).
//!
//! ```text
//!  leased ── finished, tokens of old weights ──► counted, thrown away on record ──► pending again
//! ```
//! A trajectory's batch is the step that trains it, so how old it will be then is known as soon as it
//! has ended, and none that is too old ever counts as finished: no call to the gang has it, no step
//! consumes it (I-3). Requests are only routed to weights that are new enough; what still comes in too
//! old is from an engine that swaps late or serves other weights than it says. Each is generated again
//! after a wait that grows, as one that was given back.
use super::{Place, RETURN_DELAY};
use crate::core::output::{Output, Record, Severity};
use crate::core::{Core, Mutation};
use crate::ids::{TrajectoryId, WeightVersion};

/// Versions from the oldest weights of a trajectory's tokens to those that its step trains.
pub fn staleness(id: TrajectoryId, oldest: WeightVersion) -> u64 {
    id.batch.saturating_sub(1).saturating_sub(oldest.0)
}

impl Core {
    pub(super) fn is_stale(&self, id: TrajectoryId, oldest: WeightVersion) -> bool {
        let most = self.config.max_staleness;
        let too_old = most.is_some_and(|most| staleness(id, oldest) > most);
        too_old && !self.config.mutant(Mutation::TrainStale)
    }

    /// Throws away one that ended too old. Whoever holds it by now is told to drop it.
    pub(super) fn drop_stale(&mut self, id: TrajectoryId, oldest: WeightVersion) {
        if let Some(Place::Leased(agent)) = self.s.trajectories.get(id).map(|t| t.place) {
            self.out.push_back(Output::Revoke {
                agent,
                trajectory: id,
            });
        }
        self.s.stale += 1;
        let (now, most) = (self.now, self.config.max_staleness.unwrap_or_default());
        let text = format!(
            "trajectory {id} has tokens of {oldest}, {} versions before those its step trains, at \
             most {most} are allowed: it is generated again",
            staleness(id, oldest)
        );
        self.event(Severity::Warn, "stale", None, text);
        let until = |times: u32| now + RETURN_DELAY * times.min(25);
        self.s.trajectories.begin_again(id, until);
        let trajectories = vec![id];
        self.out
            .push_back(Output::Record(Record::Discarded { trajectories }));
    }
}
