//! The trainer gang: restore, publish, prepare, train, commit ([`Stage`] draws the
//! machine; `context` says when its slots are its own).
//!
//! A call is issued when the stage before it is over and every rank is attached; it is over when the
//! present generation (the `door` sees to that) answers exactly this call, so that late and repeated
//! answers change nothing (I-1). The step is committed by a durable record before anything that follows
//! from it leaves (I-3), publishing above all (I-5).
//!
//! The machine knows no rank and no engine by itself: it looks at the others through [`Around`], says what is
//! due ([`Due`]), and its calls are effects. Whoever else looks at it reads what it tells of itself.
mod around;
mod calls;
pub(in crate::core) mod context;
mod faults;
pub(in crate::core) mod own_loop;
mod prepare;

#[cfg(test)]
mod tests;

pub use around::Around;
pub use calls::Due;

use crate::core::config::CoreConfig;
use crate::core::mutation::Mutation;
use crate::core::recover::budget::Strikes;
use crate::core::recover::cause::Causes;
use crate::ids::{Generation, InstanceId, Role, Step, WeightVersion};
use crate::time::Time;
use context::Context;
use prepare::Prepared;
use serde::{Deserialize, Serialize};

/// What the gang is about. One rank's end is the end of the generation (I-1), and a version is published only
/// after its step is committed, so that a trainer can be restored at it (I-5):
///
/// ```text
///            all ranks attached        Restored          Published(committed)
///  forming ──────────► restoring ──────────► ready ───► publishing ──► ready ──┬───────────────► training
///     ▲                                        ▲                               └─► preparing ──►    │
///     └── any fault: new generation            └───────── StepDone: committed ──────────────────────┘
/// ```
/// It is *preparing* in semi-sync only (`prepare`). Whether the ranks or the hybrid engines have the trainer's
/// slots is a machine of its own (`context`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Some rank has not attached yet.
    Forming,
    /// `Restore` is under way.
    Restoring,
    /// Restored, and no call is under way.
    Ready,
    /// `Publish` is under way.
    Publishing(WeightVersion),
    /// `Prepare` is under way.
    Preparing(Step),
    /// `TrainStep` is under way.
    Training(Step),
}

/// The trainer gang beyond its single ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gang {
    /// Its fencing number.
    generation: Generation,
    /// What it is about.
    stage: Stage,
    /// When the call under way was issued.
    called_at: Time,
    /// The step this generation restores.
    restore_step: Step,
    /// The version this generation serves to pullers.
    serves: Option<WeightVersion>,
    /// Whether this generation replaced one that failed.
    restarted: bool,
    /// Whether this generation finished a step.
    stepped: bool,
    /// No generation finished a step since the job began, or went on after its end.
    #[serde(default)]
    fresh: bool,
    /// Generations in a row that ended before they were restored.
    failed_restarts: u32,
    /// Faults of restored gangs since the last committed step.
    faults_in_step: u32,
    /// All its faults since then, kind by kind.
    #[serde(default)]
    strikes: Strikes,
    /// The same, cause by cause.
    #[serde(default)]
    causes: Causes,
    /// Whose turn its slots are; always the ranks' where there are no hybrid engines.
    #[serde(default)]
    context: Context,
    /// Since when.
    #[serde(default)]
    context_since: Time,
    /// What it prepared of the next step.
    #[serde(default)]
    prepared: Prepared,
}

/// None was ever formed.
impl Default for Gang {
    fn default() -> Self {
        Self {
            generation: Generation(0),
            stage: Stage::Forming,
            called_at: Time(0),
            restore_step: Step(0),
            serves: None,
            restarted: false,
            stepped: false,
            fresh: true,
            failed_restarts: 0,
            faults_in_step: 0,
            strikes: Strikes::default(),
            causes: Causes::default(),
            context: Context::default(),
            context_since: Time(0),
            prepared: Prepared::default(),
        }
    }
}

/// Rank 0 stands for the gang where no single rank is meant.
pub fn any_rank() -> InstanceId {
    InstanceId {
        role: Role::Trainer,
        index: 0,
    }
}

impl Gang {
    /// Its fencing number.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// What it is about.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// When the call under way was issued.
    pub fn called_at(&self) -> Time {
        self.called_at
    }

    /// The version that it serves to pullers.
    pub fn serves(&self) -> Option<WeightVersion> {
        self.serves
    }

    /// Whether it has published what it committed.
    pub fn serves_step(&self, committed: Step) -> bool {
        self.serves == Some(WeightVersion(committed.0))
    }

    /// Whether it has its state.
    pub fn is_restored(&self) -> bool {
        !matches!(self.stage, Stage::Forming | Stage::Restoring)
    }

    /// Whether a call is under way.
    pub fn is_called(&self) -> bool {
        !matches!(self.stage, Stage::Forming | Stage::Ready)
    }

    /// Whether a call is under way whose work a step is made of.
    pub fn is_in_step(&self) -> bool {
        matches!(self.stage, Stage::Training(_) | Stage::Preparing(_))
    }

    /// Whether a part of the next step was done: it is lost with this generation.
    pub fn has_begun_step(&self) -> bool {
        self.is_in_step() || self.prepared != Prepared::default()
    }

    /// Whether it has committed and published, and asks for nothing but work.
    pub fn is_idle_after(&self, committed: Step) -> bool {
        self.stage == Stage::Ready && self.serves_step(committed)
    }

    /// Whether it is at work, or is complete and only waits for its batch.
    pub fn is_at_work(&self, committed: Step, a_rank_computes: bool) -> bool {
        match self.stage {
            Stage::Training(_) | Stage::Preparing(_) => a_rank_computes,
            Stage::Ready => self.serves_step(committed),
            Stage::Forming | Stage::Restoring | Stage::Publishing(_) => false,
        }
    }

    /// A new generation is formed. `restarted`: it replaces one that failed.
    pub fn form(&mut self, config: &CoreConfig, generation: Generation, restarted: bool) {
        self.generation = generation;
        self.stage = Stage::Forming;
        if !config.mutant(Mutation::KeepServes) {
            self.serves = None;
        }
        self.stepped = false;
        self.prepared = Prepared::default();
        self.restarted = restarted;
    }

    /// The daemon was away: whoever made the calls and kept their results is gone with them.
    pub fn rejoin(&mut self) {
        self.serves = None;
        self.stage = match self.is_restored() {
            true => Stage::Ready,
            false => Stage::Forming,
        };
        self.prepared = Prepared::default();
    }
}
