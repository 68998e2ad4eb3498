//! Bringing the gang to the committed step, from wherever its state still is.
//!
//! ```text
//!  the sources in their order, one after the other: the committed step itself ─► restored
//!  all that they have besides, newest first, of equal ones in the sources' order ─► tried one by one
//!      an older one ─► the steps after it, trained again from what they consumed ─► restored
//!      none, or what they consumed is gone ───────────────────────────────────► a clear failure
//! ```
//! The initial weights are the state of step 0 and always there. Steps that are trained again
//! ([`replay`]) are neither committed nor published: their trajectories stay consumed by the very step
//! that consumed them (I-3), and the committed step, which rollouts serve, stays what it is (I-4).
mod far;
mod peers;
mod replay;
mod sources;
#[cfg(test)]
mod tests;

pub use far::Far;
pub use peers::{Needed, PeerHolder, PeerMemory, PeerView, Peers};
pub use replay::{Again, Progress, Replayed};
pub use sources::{Disk, Memory, Source};

use super::gang::{Gang, StepError, Trains};
use super::step::StepOutcome;
use crate::store::Store;
use replay::Plan;
use robust_shared::dispatch::calls::{Peer, Restore, Shard};
use robust_shared::ids::{Incarnation, Step};
use std::fmt;
use std::sync::Arc;

/// What a restore works with.
pub struct Way {
    /// Where states may be, in the order in which they are asked.
    pub sources: Vec<Arc<dyn Source>>,
    /// The gang as its ranks must know it.
    pub peers: Vec<Peer>,
    /// Each rank needs its own shard alone.
    pub own: bool,
    /// What earlier steps consumed.
    pub store: Store,
    /// Told of every step that is trained again.
    pub progress: Progress,
    /// Names this attempt: what an earlier one had answered must not pass for this one's work.
    pub attempt: u64,
}

/// Where the state came from; `Display` is a sentence for the event log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origin {
    /// The source's name.
    pub source: &'static str,
    /// The step it had.
    pub from: Step,
    /// The steps after it that were trained again.
    pub again: Vec<Again>,
    /// What was passed over, and why.
    pub passed_over: Vec<String>,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from {}", self.source)?;
        if let (Some(first), Some(last)) = (self.again.first(), self.again.last()) {
            write!(f, " at step {}, then ", self.from)?;
            match first.step == last.step {
                true => write!(f, "step {} was", last.step)?,
                false => write!(f, "steps {} to {} were", first.step, last.step)?,
            }
            let differing = self.again.iter().filter(|a| !a.same).count();
            write!(f, " trained again from their trajectories, ")?;
            match differing {
                0 => write!(f, "with the same figures to the bit")?,
                n => write!(f, "{n} of them with other figures than the first time")?,
            }
        }
        match self.passed_over.is_empty() {
            true => Ok(()),
            false => write!(f, "; passed over: {}", self.passed_over.join("; ")),
        }
    }
}

/// Where a state may be.
struct Candidate {
    step: Step,
    source: Option<Arc<dyn Source>>,
}

impl Candidate {
    fn name(&self) -> &'static str {
        self.source.as_ref().map_or(INITIAL, |s| s.name())
    }
}

/// The model folder, which holds the state of step 0.
const INITIAL: &str = "the initial weights";

/// Brings all ranks to a committed step.
pub async fn restore(gang: Gang, step: Step, way: Way) -> Result<StepOutcome, StepError> {
    let mut search = Search {
        gang: gang.again(way.attempt),
        way: &way,
        step,
        plan: None,
        rank: None,
        passed_over: Vec::new(),
    };
    let mut older = Vec::new();
    // One after the other: a far source is asked, and waited for, only when no nearer one will do.
    for source in way.sources.iter().filter(|_| step.0 > 0) {
        for candidate in search.candidates(source).await {
            match candidate.step == step {
                false => older.push(candidate),
                true => {
                    if let Some(restored) = search.attempt(&candidate).await? {
                        return Ok(restored);
                    }
                }
            }
        }
    }
    // Stable: of one step, in the order of the sources.
    older.sort_by_key(|c| std::cmp::Reverse(c.step));
    let (step_0, source) = (Step(0), None);
    older.push(Candidate {
        step: step_0,
        source,
    });
    for candidate in older {
        if let Some(restored) = search.attempt(&candidate).await? {
            return Ok(restored);
        }
    }
    Err(StepError::NothingToRestore {
        step: step.0,
        tried: search.passed_over,
        rank: search.rank,
    })
}

/// A restore under way.
struct Search<'a> {
    gang: Gang,
    way: &'a Way,
    step: Step,
    plan: Option<Plan>,
    /// Who could not load what it was given.
    rank: Option<Incarnation>,
    passed_over: Vec<String>,
}

impl Search<'_> {
    /// What a source may have, newest first.
    async fn candidates(&mut self, source: &Arc<dyn Source>) -> Vec<Candidate> {
        let reason = match source.steps(self.step).await {
            Ok(steps) if steps.is_empty() => "no state is known there".to_owned(),
            Ok(mut steps) => {
                steps.retain(|s| s.0 > 0 && *s <= self.step);
                steps.sort_by_key(|s| std::cmp::Reverse(*s));
                let of = |step| Candidate {
                    step,
                    source: Some(Arc::clone(source)),
                };
                return steps.into_iter().map(of).collect();
            }
            Err(reason) => reason,
        };
        self.passed_over
            .push(format!("{}: {reason}", source.name()));
        Vec::new()
    }

    /// Restores from a candidate; none if it will not do.
    async fn attempt(&mut self, candidate: &Candidate) -> Result<Option<StepOutcome>, StepError> {
        let of = format!("{} at step {}", candidate.name(), candidate.step);
        let store = &self.way.store;
        let again = match replayed(
            &mut self.plan,
            (store, self.gang.trains),
            candidate.step,
            self.step,
        )
        .await?
        {
            Ok(again) => again,
            Err(reason) => {
                self.passed_over.push(format!("{of}: {reason}"));
                return Ok(None);
            }
        };
        if let Err(Passed { reason, by }) = begin(&self.gang, candidate, self.way).await {
            self.rank = by.or(self.rank);
            self.passed_over.push(format!("{of}: {reason}"));
            return Ok(None);
        }
        let begun = (
            candidate.name(),
            candidate.step,
            self.passed_over.as_slice(),
        );
        let again = again.run(&self.gang, self.way, begun).await?;
        let from = Origin {
            source: candidate.name(),
            from: candidate.step,
            again,
            passed_over: std::mem::take(&mut self.passed_over),
        };
        Ok(Some(StepOutcome::Restored {
            generation: self.gang.generation,
            step: self.step,
            from,
        }))
    }
}

/// What has to be trained again after `from`, or why it cannot be; read from the store once.
async fn replayed(
    plan: &mut Option<Plan>,
    (store, trains): (&Store, Trains),
    from: Step,
    step: Step,
) -> Result<Result<Plan, String>, StepError> {
    if from == step {
        return Ok(Ok(Plan::default()));
    }
    let whole = match plan.take() {
        Some(known) => known,
        None => Plan::read(store.clone(), step, trains).await?,
    };
    let after = whole.after(from);
    *plan = Some(whole);
    Ok(after)
}

/// Why a candidate does not do.
struct Passed {
    reason: String,
    by: Option<Incarnation>,
}

/// Puts a candidate's state on every rank.
async fn begin(gang: &Gang, candidate: &Candidate, way: &Way) -> Result<(), Passed> {
    let shards = match &candidate.source {
        None => Vec::new(),
        Some(source) => source.shards(candidate.step).await.map_err(|reason| {
            let by = None;
            Passed { reason, by }
        })?,
    };
    let step = candidate.step;
    call(gang, step, shards, way).await.map_err(|e| Passed {
        reason: e.to_string(),
        by: e.rank(),
    })
}

async fn call(gang: &Gang, step: Step, shards: Vec<Shard>, way: &Way) -> Result<(), StepError> {
    let whole = Restore {
        step,
        shards,
        peers: way.peers.clone(),
        own: way.own,
    };
    gang.call::<Restore>(step.0, whole).await.map(drop)
}
