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
use crate::core::Core;
use crate::core::output::Output;
use crate::core::state::Stage;
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

impl Core {
    /// Issues the call for prompts that are finished and were not asked for, if there are any.
    pub(in crate::core) fn prepare(&mut self, step: Step) {
        let done = &self.s.gang.prepared.prompts;
        let more = self.s.work.requests.table().finished_prompts(step) as usize > done.len();
        if !more || !self.prepares() || !self.enough_is_finished() {
            return;
        }
        let finished = self.s.work.requests.table().prompts_finished(step);
        let new = |prompt: &u32| !done.contains(prompt) && self.any_trained(step, *prompt);
        let asked: Vec<u32> = finished.into_iter().filter(new).collect();
        if asked.is_empty() {
            return;
        }
        if self.s.gang.prepared.prompts.is_empty() {
            self.step_begins();
        }
        self.s.gang.prepared.asked = asked;
        self.s.gang.stage = Stage::Preparing(step);
        self.call_again();
    }

    /// The call of the stage `preparing`.
    pub(in crate::core) fn prepare_call(&self, step: Step) -> Output {
        let asked = self.s.gang.prepared.asked.iter().copied();
        let of = |group: u32| self.trained_of(step, group);
        Output::Prepare {
            generation: self.s.gang.generation,
            ranks: self.ranks(),
            step,
            trajectories: asked.flat_map(of).collect(),
        }
    }

    /// The trajectories of a finished prompt that its step trains on.
    fn trained_of(&self, step: Step, group: u32) -> impl Iterator<Item = TrajectoryId> {
        let of = move |member| TrajectoryId {
            batch: step.0,
            group,
            member,
        };
        let all = (0..self.config.responses).map(of);
        all.filter(|id| self.s.work.requests.table().is_trained(*id))
    }

    fn any_trained(&self, step: Step, group: u32) -> bool {
        self.trained_of(step, group).next().is_some()
    }

    pub(in crate::core) fn on_prepared(&mut self, step: Step) {
        let gang = &mut self.s.gang;
        if gang.stage != Stage::Preparing(step) {
            return;
        }
        gang.stage = Stage::Ready;
        let asked = std::mem::take(&mut gang.prepared.asked);
        gang.prepared.prompts.extend(asked);
    }
}
