//! Training committed steps again, from the trajectories that they consumed.
//!
//! A step's result follows from the state before it and its batch alone, in an order that the ranks
//! keep (I-9), so a gang that is deterministic comes to the very state that was lost. Whether it did
//! is known: the figures of each step are on record, and the version's digest is compared when it is
//! published again.
use super::Way;
use crate::control::gang::{Gang, StepError, Trains};
use crate::control::step::{abandoned, learn};
use crate::snapshots::SnapshotShards;
use crate::store::{Store, StoreError};
use robust_shared::core::StepMetrics;
use robust_shared::ids::{Generation, Step, TrajectoryId};
use std::collections::BTreeMap;

/// A step that was trained again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// Which.
    pub step: Step,
    /// Whether its figures are those on record, to the bit.
    pub same: bool,
}

/// What is told while steps are trained again.
#[derive(Debug)]
pub enum Replayed {
    /// It begins.
    Begins {
        /// A sentence.
        text: String,
    },
    /// A step is done, and its snapshot is complete.
    Step {
        /// Which gang.
        generation: Generation,
        /// The step.
        again: Again,
        /// The committed step, where it ends.
        until: Step,
        /// The next attempt can begin here.
        snapshot: SnapshotShards,
    },
}

/// Whom it is told.
pub type Progress = Box<dyn Fn(Replayed) + Send + Sync>;

/// Steps to be trained again, with what each consumed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Plan {
    until: Step,
    steps: BTreeMap<Step, Vec<TrajectoryId>>,
}

impl Plan {
    /// All steps up to the committed one that can be, without a gap.
    /// Steps of an own loop consumed nothing, and their programs do them again as they like.
    pub async fn read(store: Store, until: Step, trains: Trains) -> Result<Self, StepError> {
        let reading = tokio::task::spawn_blocking(move || {
            let mut steps = BTreeMap::new();
            for step in (1..=until.0).rev().map(Step) {
                let consumed = store.consumed_by(step)?;
                if consumed.is_empty() && trains != Trains::OwnLoop {
                    break;
                }
                steps.insert(step, consumed);
            }
            Ok::<_, StoreError>(Self { until, steps })
        });
        let read = reading.await;
        Ok(read.map_err(|_| abandoned("reading what steps consumed"))??)
    }

    /// The part after a step, or why there is none.
    pub fn after(&self, from: Step) -> Result<Self, String> {
        let next = from.next();
        if !self.steps.contains_key(&next) {
            let first = self.steps.keys().next().copied();
            let first = first.unwrap_or(self.until.next());
            let last = first.0.saturating_sub(1);
            return Err(match next.0 == last {
                true => format!("what step {next} consumed is not in the store any more"),
                false => {
                    format!("what steps {next} to {last} consumed is not in the store any more")
                }
            });
        }
        let steps = self.steps.range(next..).map(|(s, ids)| (*s, ids.clone()));
        Ok(Self {
            until: self.until,
            steps: steps.collect(),
        })
    }

    /// Trains them, one after the other, on a gang that is at the step before the first.
    pub async fn run(
        self,
        gang: &Gang,
        way: &Way,
        (source, from, passed_over): (&str, Step, &[String]),
    ) -> Result<Vec<Again>, StepError> {
        if self.steps.is_empty() {
            return Ok(Vec::new());
        }
        let (until, count) = (self.until, self.steps.len());
        (way.progress)(Replayed::Begins {
            text: format!(
                "step {until} is nowhere whole ({}): going back to step {from} ({source}) and \
                 training {count} of the committed steps again",
                passed_over.join("; ")
            ),
        });
        let mut done = Vec::new();
        for (step, trajectories) in self.steps {
            let known = Default::default();
            let learned = learn(gang, &way.store, step, &trajectories, known).await?;
            let learned = learned.ok_or_else(|| abandoned("a step that is done again"))?;
            let first = way.store.step(step)?.map(|stored| stored.metrics);
            let same = first.is_some_and(|first| is_same(&first, &learned.metrics));
            let again = Again { step, same };
            (way.progress)(Replayed::Step {
                generation: gang.generation,
                again,
                until,
                snapshot: learned.snapshot,
            });
            done.push(again);
        }
        Ok(done)
    }
}

fn is_same(first: &StepMetrics, now: &StepMetrics) -> bool {
    let bits = |m: &StepMetrics| [m.reward, m.loss, m.grad_norm].map(f64::to_bits);
    (bits(first), first.tokens) == (bits(now), now.tokens)
}
