//! Old logprobs, in one go or in pieces: what was computed for finished prompts while the rest of the
//! batch was generated is kept here and not asked for again.
//!
//! Kept for one generation and one step: another gang, or the next step, finds nothing. The trainer's
//! values do not depend on which samples are asked for together, so pieces give the same bits.
use super::gang::{Gang, StepError, Trains};
use super::step::{StepOutcome, load};
use crate::store::Store;
use robust_shared::batch::{Batch, Jagged};
use robust_shared::dispatch::calls::{OldLogprobs, columns};
use robust_shared::ids::{Generation, Step, TrajectoryId};
use std::collections::HashMap;

/// A logprob for each token after the first, by trajectory.
pub type Rows = HashMap<TrajectoryId, Vec<f32>>;

/// What one gang computed ahead for one step.
#[derive(Clone, Debug, Default)]
pub struct Ahead {
    of: (Generation, Step),
    rows: Rows,
}

impl Ahead {
    /// Keeps rows; those of another gang or step are forgotten.
    pub fn add(&mut self, generation: Generation, step: Step, rows: Rows) {
        if self.of != (generation, step) {
            self.of = (generation, step);
            self.rows.clear();
        }
        self.rows.extend(rows);
    }

    /// What there is for this gang and step.
    pub fn of(&self, generation: Generation, step: Step) -> Rows {
        match self.of == (generation, step) {
            true => self.rows.clone(),
            false => Rows::new(),
        }
    }
}

/// Computes the old logprobs of a part of a step's batch.
pub async fn prepare(
    gang: Gang,
    store: Store,
    step: Step,
    trajectories: Vec<TrajectoryId>,
) -> Result<StepOutcome, StepError> {
    let generation = gang.generation;
    if gang.trains != Trains::BuiltIn {
        // A program of the user's computes them itself, with its step.
        let rows = Rows::new();
        return Ok(StepOutcome::Prepared {
            generation,
            step,
            rows,
        });
    }
    let batch = load(store, trajectories.clone()).await?;
    let column = ask(&gang, step, &trajectories, &batch).await?;
    let rows = trajectories.into_iter().zip(column.rows());
    let rows = rows.map(|(id, row)| (id, row.to_vec())).collect();
    Ok(StepOutcome::Prepared {
        generation,
        step,
        rows,
    })
}

/// The column of a whole batch: what is known, and what the ranks say of the rest.
pub(super) async fn old_logprobs(
    gang: &Gang,
    step: Step,
    trajectories: &[TrajectoryId],
    batch: &Batch,
    mut known: Rows,
) -> Result<Jagged<f32>, StepError> {
    let missing: Vec<usize> = (0..trajectories.len())
        .filter(|&at| !known.contains_key(&trajectories[at]))
        .collect();
    if !missing.is_empty() {
        let ids: Vec<TrajectoryId> = missing.iter().map(|&at| trajectories[at]).collect();
        let column = ask(gang, step, &ids, &batch.index(&missing)?).await?;
        known.extend(ids.into_iter().zip(column.rows().map(<[f32]>::to_vec)));
    }
    let mut column = Jagged::default();
    for id in trajectories {
        column.push(known.get(id).map(Vec::as_slice).unwrap_or_default());
    }
    Ok(column)
}

async fn ask(
    gang: &Gang,
    step: Step,
    ids: &[TrajectoryId],
    batch: &Batch,
) -> Result<Jagged<f32>, StepError> {
    let samples = batch.select(&[columns::IDS, columns::TRAINABLE])?;
    // Each part of a batch is a call of its own, the same part asked again the same call.
    let part = ids.iter().fold(0u64, |sum, id| {
        (sum ^ id.key()).wrapping_mul(0x0100_0000_01b3)
    });
    let call = OldLogprobs { step, samples };
    gang.call_part::<OldLogprobs>(step.0, part, call).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: TrajectoryId = TrajectoryId {
        batch: 4,
        group: 1,
        member: 0,
    };

    #[test]
    fn what_another_gang_or_for_another_step_computed_is_not_used() {
        let mut ahead = Ahead::default();
        let row = || Rows::from([(T, vec![-0.5])]);
        ahead.add(Generation(2), Step(4), row());
        assert_eq!(ahead.of(Generation(2), Step(4)), row());
        assert!(ahead.of(Generation(3), Step(4)).is_empty());
        assert!(ahead.of(Generation(2), Step(5)).is_empty());
        ahead.add(Generation(3), Step(4), Rows::new());
        assert!(
            ahead.of(Generation(3), Step(4)).is_empty(),
            "weights of another life"
        );
    }
}
