//! Count: how often who died of what.
use super::{Causes, Fingerprint, Recurring};
use crate::core::detect::Verdict;
use crate::core::{Core, Mutation};
use crate::ids::{InstanceId, Role};

impl Core {
    /// Counts what a verdict came of; none where that came from outside. A death that one of the engine's
    /// requests is to blame for is not counted.
    pub(in crate::core) fn count_cause(
        &mut self,
        verdict: &Verdict,
        poisoned: bool,
    ) -> Option<Recurring> {
        let (cause, now) = (verdict.cause.clone()?, self.now);
        let counted = match self.config.mutant(Mutation::OneCause) {
            true => Fingerprint(0),
            false => cause.fingerprint,
        };
        let most = match self.config.mutant(Mutation::CauseWithoutEnd) {
            true => self.config.same_cause,
            false => u32::MAX,
        };
        let causes = self.causes_of(verdict.who)?;
        let count = match poisoned {
            true => causes.in_a_row(counted),
            false => causes.strike(counted, now),
        };
        Some(Recurring {
            cause,
            count: count.min(most),
        })
    }

    /// What is counted for an instance; of ranks it is the gang that fails.
    fn causes_of(&mut self, who: InstanceId) -> Option<&mut Causes> {
        match who.role {
            Role::Trainer => Some(self.s.gang.causes_mut()),
            Role::Hybrid | Role::Rollout | Role::Agent => {
                let i = self.s.instances.get_mut(who)?;
                Some(&mut i.causes)
            }
        }
    }
}
