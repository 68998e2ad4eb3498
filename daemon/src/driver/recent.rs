//! The phases of the last minutes, between the driver and who serves operators.
use robust_proto::v1;
use robust_shared::history::{PhaseSpan, Recent};
use robust_shared::ids::{InstanceId, Role};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The last phases of every instance: the driver writes, who serves operators reads.
#[derive(Clone, Debug, Default)]
pub struct RecentPhases(Arc<Mutex<Recent>>);

impl RecentPhases {
    /// For a moment: the driver waits meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Recent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fills in how long the steps of ranks take.
    pub(super) fn show(&self, status: &mut v1::Status) {
        let recent = self.lock();
        let ranks = status.roles.iter_mut();
        for rank in ranks.filter(|r| r.role == Role::Trainer.name()) {
            let id = InstanceId {
                role: Role::Trainer,
                index: rank.index,
            };
            let took = recent.step_took(id);
            rank.step_ms = took.and_then(|took| u64::try_from(took.as_millis()).ok());
        }
    }
}

/// A span as operators see it.
pub fn span(span: &PhaseSpan, present: bool) -> v1::PhaseSpan {
    let took = span.to.since(span.from).as_millis();
    v1::PhaseSpan {
        phase: span.phase.name().to_owned(),
        started_ms: span.from.millis(),
        ms: u64::try_from(took).unwrap_or(u64::MAX),
        step: span.step.0,
        incarnation: span.incarnation.0,
        role: span.id.role.name().to_owned(),
        index: span.id.index,
        present,
    }
}
