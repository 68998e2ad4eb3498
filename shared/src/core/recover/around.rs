//! What recoveries look at of the others.
use super::recoveries::{Recovery, Scope};
use crate::core::gang::Gang;
use crate::core::roster::index::{Counts, Index};
use crate::core::roster::instance::Instance;
use crate::core::roster::instances::Instances;
use crate::core::weights::Weights;
use crate::core::work::Work;
use crate::ids::{Role, Step};

/// What recoveries look at of the others, all of it up to date.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// Who is where.
    pub instances: &'a Instances,
    /// How many of them are how far.
    pub index: &'a Index,
    /// What the gang is about.
    pub gang: &'a Gang,
    /// Which engine has the published version.
    pub weights: &'a Weights,
    /// Which agent worker has work.
    pub work: &'a Work,
    /// The last committed step.
    pub committed: Step,
    /// An operator wants nothing new begun.
    pub pauses: bool,
}

impl Around<'_> {
    /// Whether all instances that it restarts have come to that point.
    pub fn all_covered(&self, recovery: &Recovery, reached: fn(&Counts) -> u32) -> bool {
        let all = |role: Role| {
            let counts = self.index.counts(role);
            // A gang is whole or none; of the others, who has no slot is waited for by nobody.
            let absent = if role == Role::Trainer {
                0
            } else {
                counts.absent
            };
            reached(&counts) + absent == self.instances.count(role)
        };
        match recovery.scope {
            Scope::Instance => self.index.has(recovery.who, reached),
            Scope::Gang => all(Role::Trainer),
            Scope::Task => Role::ALL.into_iter().all(all),
        }
    }

    /// Whether the kill that it began with was done; before it, the old process still counts as linked.
    pub fn is_carried_out(&self, recovery: &Recovery) -> bool {
        let who = self.instances.get(recovery.who);
        let condemned = who.and_then(|i| i.condemned());
        condemned.is_none_or(|c| c.incident != recovery.incident)
    }

    /// Whether useful work goes on.
    pub fn work_goes_on(&self, recovery: &Recovery) -> bool {
        let admitted = |i: &Instance| {
            let admitted = self.weights.of(i.id()).is_admitted();
            (admitted || i.quarantined() && i.attached()) && i.suspect().is_none()
        };
        let serves = |role| self.index.counts(role).serves > 0;
        match (recovery.scope, recovery.who.role) {
            (Scope::Task, _) => {
                self.gang_works() && (serves(Role::Hybrid) || serves(Role::Rollout))
            }
            (Scope::Gang, _) | (_, Role::Trainer) => self.gang_works(),
            (Scope::Instance, Role::Hybrid | Role::Rollout) => {
                self.instances.get(recovery.who).is_some_and(admitted)
            }
            (Scope::Instance, Role::Agent) => {
                let agent = self.instances.get(recovery.who);
                let batches = self.work.requests.table();
                let leases = agent.map_or(0, |a| batches.leases(a.incarnation()));
                leases > 0 || self.pauses || !batches.any_pending()
            }
        }
    }

    /// The trainer computes, or is complete and only waits for its batch.
    fn gang_works(&self) -> bool {
        let computes = self.index.counts(Role::Trainer).works > 0;
        self.gang.is_at_work(self.committed, computes)
    }
}
