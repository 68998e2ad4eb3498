//! Count: how often who died of what.
use super::{Cause, Causes, Fingerprint, Recurring};
use crate::core::config::CoreConfig;
use crate::core::mutation::Mutation;
use crate::time::Time;

impl Causes {
    /// Counts what a death came of. `is_innocent`: a death that is not counted, for another is to blame.
    pub fn count(
        &mut self,
        config: &CoreConfig,
        cause: Cause,
        is_innocent: bool,
        now: Time,
    ) -> Recurring {
        let counted = match config.mutant(Mutation::OneCause) {
            true => Fingerprint(0),
            false => cause.fingerprint,
        };
        let most = match config.mutant(Mutation::CauseWithoutEnd) {
            true => config.same_cause,
            false => u32::MAX,
        };
        let count = match is_innocent {
            true => self.in_a_row(counted),
            false => self.strike(counted, now),
        };
        Recurring {
            cause,
            count: count.min(most),
        }
    }
}
