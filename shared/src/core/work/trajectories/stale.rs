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
use crate::core::Mutation;
use crate::core::config::{CoreConfig, Mode};
use crate::ids::{TrajectoryId, WeightVersion};
use std::ops::RangeInclusive;

/// Versions from the oldest weights of a trajectory's tokens to those that its step trains.
pub fn staleness(id: TrajectoryId, oldest: WeightVersion) -> u64 {
    id.batch.saturating_sub(1).saturating_sub(oldest.0)
}

impl CoreConfig {
    /// Whether a trajectory that has tokens of these weights is too old for its step to train on.
    pub(in crate::core) fn is_stale(&self, id: TrajectoryId, oldest: WeightVersion) -> bool {
        let too_old = |most| staleness(id, oldest) > most;
        self.max_staleness.is_some_and(too_old) && !self.mutant(Mutation::TrainStale)
    }

    /// The versions whose tokens a batch may have.
    pub(in crate::core) fn fit_versions(&self, batch: u64) -> RangeInclusive<WeightVersion> {
        let newest = batch.saturating_sub(1);
        if self.mutant(Mutation::StaleWeights) {
            return WeightVersion(0)..=WeightVersion(u64::MAX);
        }
        match self.mode {
            Mode::Sync => WeightVersion(newest)..=WeightVersion(newest),
            Mode::SemiSync | Mode::Async => {
                let oldest = newest.saturating_sub(self.route_staleness());
                WeightVersion(oldest)..=WeightVersion(u64::MAX)
            }
        }
    }
}

/// Why one is thrown away.
pub(super) fn words(id: TrajectoryId, oldest: WeightVersion, most: u64) -> String {
    format!(
        "trajectory {id} has tokens of {oldest}, {} versions before those its step trains, at \
         most {most} are allowed: it is generated again",
        staleness(id, oldest)
    )
}
