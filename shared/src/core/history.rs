//! What each instance did last, phase by phase, as it was reported.
use super::Core;
use super::instance::Instance;
use crate::hash::IdMap;
use crate::ids::{Incarnation, InstanceId, Step};
use crate::phase::Phase;
use crate::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Phases kept of an instance, besides the present one.
const KEPT: usize = 11;

/// A stretch of time that an instance was in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseSpan {
    /// Which life.
    pub incarnation: Incarnation,
    /// The phase.
    pub phase: Phase,
    /// The step it worked on.
    pub step: Step,
    /// Since when.
    pub from: Time,
    /// How long; so far, of the present one.
    pub took: Duration,
}

impl PhaseSpan {
    fn present(i: &Instance, now: Time) -> Self {
        Self {
            incarnation: i.incarnation,
            phase: i.phase,
            step: i.phase_step,
            from: i.phase_since,
            took: now.since(i.phase_since),
        }
    }
}

/// The phases that are over.
#[derive(Clone, Debug, Default)]
pub struct History {
    over: IdMap<InstanceId, VecDeque<PhaseSpan>>,
}

impl History {
    /// The present phase of an instance is over.
    pub fn close(&mut self, i: &Instance, now: Time) {
        if i.incarnation == Incarnation(0) {
            return;
        }
        let spans = self.over.entry(i.id).or_default();
        if spans.len() == KEPT {
            spans.pop_front();
        }
        spans.push_back(PhaseSpan::present(i, now));
    }

    /// Those of an instance, oldest first; the present one last, if it has a process.
    pub fn of(&self, i: &Instance, now: Time) -> Vec<PhaseSpan> {
        let over = self.over.get(&i.id).into_iter().flatten().copied();
        let present = i.has_process().then(|| PhaseSpan::present(i, now));
        over.chain(present).collect()
    }
}

impl Core {
    /// The life of a place is over, whatever it was doing.
    pub(super) fn close_phase(&mut self, id: InstanceId) {
        if let Some(i) = self.s.instances.get(id) {
            self.history.close(i, self.now);
        }
    }
}
