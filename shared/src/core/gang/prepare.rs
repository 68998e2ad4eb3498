//! Preparing a step: the old logprobs of prompts that are finished while the rest of the batch is
//! generated (semi-sync).
//!
//! ```text
//!  ready ── enough is finished, not all ──► preparing ── Prepared ──► ready ── all is ──► training
//!              ▲       the prompts finished since                       │
//!              └────────────────────────────────────────────────────────┘
//! ```
//! What was prepared is known by generation and step, here and by whoever drives this: a new gang, a
//! committed step, a discarded batch or a restarted daemon begins anew. The step itself asks only for
//! what is missing; the values are the same to the bit in whatever pieces they are asked for.
use super::{Around, Due, Gang, Stage};
use crate::core::config::{CoreConfig, Mode};
use crate::ids::{Step, TrajectoryId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What of the next step was prepared by the present gang.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Prepared {
    /// Prompts asked for so far.
    prompts: BTreeSet<u32>,
    /// Those of the call under way.
    asked: Vec<u32>,
}

impl Gang {
    /// Goes on to prompts that are finished and were not asked for, if there are any.
    pub(super) fn prepare(
        &mut self,
        config: &CoreConfig,
        around: &Around<'_>,
        step: Step,
    ) -> Option<Due> {
        let done = &self.prepared.prompts;
        let more = around.finished_of_next() as usize > done.len();
        if !more || !self.prepares(config) || !around.enough_is_finished(config) {
            return None;
        }
        let finished = around.batches.prompts_finished(step);
        let any_trained = |group| trained_of(config, around, step, group).next().is_some();
        let new = |prompt: &u32| !done.contains(prompt) && any_trained(*prompt);
        let asked: Vec<u32> = finished.into_iter().filter(new).collect();
        if asked.is_empty() {
            return None;
        }
        let begins_step = done.is_empty();
        self.prepared.asked = asked;
        self.stage = Stage::Preparing(step);
        Some(Due::Call { begins_step })
    }

    /// Whether a part of a batch may be prepared for before the rest is finished.
    fn prepares(&self, config: &CoreConfig) -> bool {
        config.mode == Mode::SemiSync && self.ranks_have_their_slots()
    }

    /// The trajectories of the call under way.
    pub(super) fn asked_for(
        &self,
        config: &CoreConfig,
        around: &Around<'_>,
        step: Step,
    ) -> Vec<TrajectoryId> {
        let asked = self.prepared.asked.iter();
        let of = |group: &u32| trained_of(config, around, step, *group);
        asked.flat_map(of).collect()
    }

    /// Notes what is prepared, where that answers the call under way.
    pub fn note_prepared(&mut self, step: Step) {
        if self.stage != Stage::Preparing(step) {
            return;
        }
        self.stage = Stage::Ready;
        let asked = std::mem::take(&mut self.prepared.asked);
        self.prepared.prompts.extend(asked);
    }
}

/// The trajectories of a finished prompt that its step trains on.
fn trained_of(
    config: &CoreConfig,
    around: &Around<'_>,
    step: Step,
    group: u32,
) -> impl Iterator<Item = TrajectoryId> {
    let of = move |member| TrajectoryId {
        batch: step.0,
        group,
        member,
    };
    let all = (0..config.responses).map(of);
    let batches = around.batches;
    all.filter(move |id| batches.is_trained(*id))
}
