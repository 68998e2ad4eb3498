//! Which committed step consumed a trajectory, and what one is that no step consumed: from the record of the step,
//! from the trajectory's own record, and from what the controller has of it. The first two are compared.
//!
//! ```text
//!  journal: Committed ──┐
//!  trajectory's own  ───┼─► agree? ──► Witness (of one), StepAccount (of a step)
//!  controller, now   ───┘    judge
//! ```
mod account;
mod judge;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use account::{AccountError, account};

use crate::store::{Committed, Finish, OwnRecord, Retention, Store, StoreError};
use judge::{Listed, is_set_aside, past_of, versions};
use robust_proto::v1;
use robust_shared::core::{Past, Place, Setback, Trajectory};
use robust_shared::ids::{Incarnation, Step, TrajectoryId};
use robust_shared::wire::WitnessState;
use std::time::Duration;

/// What looks wrong must do so that often, so long apart: a commit may fall between two readings.
const LOOKS: usize = 3;
const BETWEEN: Duration = Duration::from_millis(20);

/// What the controller has of a trajectory.
#[derive(Clone, Debug, PartialEq)]
pub struct Live {
    /// The last committed step.
    pub committed: Step,
    /// None: its batch is not open. None within: its batch has no such trajectory.
    pub open: Option<Option<Trajectory>>,
}

/// What is on record of one trajectory.
struct Facts {
    id: TrajectoryId,
    own: OwnRecord,
    /// The step of its batch.
    commit: Option<Committed>,
    /// The step that its own record names, where that is another one.
    named: Option<Committed>,
    /// The first and the last step on record.
    extent: Option<(Step, Step)>,
    /// The last step that is committed by what the store has, whether or not the journal has its record.
    recorded: Step,
    retention: Retention,
    live: Live,
}

/// What a trajectory is; none: the job has no such trajectory. Without a controller that runs the store says what that
/// had of it last. Blocks.
pub fn witness(
    store: &Store,
    id: TrajectoryId,
    live: Option<Live>,
) -> Result<Option<v1::Witness>, StoreError> {
    let mut seen = facts(store, id, live)?.witness();
    for _ in 1..LOOKS {
        if seen.as_ref().is_none_or(|w| w.disagreements.is_empty()) {
            break;
        }
        std::thread::sleep(BETWEEN);
        // What the controller said may be older than what was read after it; the store has both by the same write.
        seen = facts(store, id, None)?.witness();
    }
    Ok(seen)
}

fn facts(store: &Store, id: TrajectoryId, live: Option<Live>) -> Result<Facts, StoreError> {
    let own = store.own_record(id)?;
    let extent = store.extent()?;
    // Read before the steps' records: of a step that it counts the record is there, or lost.
    let known = store.committed()?.max(extent.map(|(_, last)| last));
    let other = own.consumed_by.filter(|by| by.0 != id.batch);
    let live = match live {
        Some(live) => live,
        None => Live {
            committed: known.unwrap_or_default(),
            open: store.open_trajectory(id)?,
        },
    };
    Ok(Facts {
        id,
        commit: store.commit(Step(id.batch))?,
        named: other.map(|by| store.commit(by)).transpose()?.flatten(),
        retention: match own.stored {
            Some(_) => Retention::Kept,
            None => store.retention(id.batch)?,
        },
        // A database that was made anew has at first only what manifests say.
        recorded: known.or(own.consumed_by).unwrap_or(live.committed),
        own,
        extent,
        live,
    })
}

impl Facts {
    fn witness(&self) -> Option<v1::Witness> {
        let batch = Step(self.id.batch);
        let listing = self.listing();
        let mut witness = match listing {
            Some(commit) => self.consumed(commit),
            None => self.not_listed()?,
        };
        let stored = self.own.stored.as_ref();
        witness.newest_version = stored.and_then(|s| versions(s).1).unwrap_or(0);
        let is_listed = witness.step.is_some();
        let is_ahead = !is_listed && batch > self.recorded;
        witness.kept = stored.is_some() || is_ahead;
        if let (true, Retention::Removed { with }) = (is_listed, self.retention) {
            witness.not_kept_since = with.map(|step| step.0);
        }
        let agrees = witness.disagreements.is_empty() && self.own.consumed_by == Some(batch);
        // A former build's record does not say whether it was trained on: what is stored of it does.
        let says = |commit: &Committed| commit.provenance.is_some() || stored.is_some();
        witness.proven = agrees && listing.is_some_and(says);
        Some(witness)
    }

    /// The step whose record lists it.
    fn listing(&self) -> Option<&Committed> {
        let lists = |commit: &&Committed| commit.trajectories.contains(&self.id);
        let both = self.commit.iter().chain(&self.named);
        both.into_iter().find(lists)
    }

    fn consumed(&self, commit: &Committed) -> v1::Witness {
        let (id, step) = (self.id, commit.figures.step);
        let past = past_of(commit.provenance.as_ref(), id);
        let at = commit.trajectories.iter().position(|of| *of == id);
        let leases = commit.provenance.as_ref().map(|p| &p.leases);
        let lease = leases.and_then(|leases| leases.get(at?).copied());
        let set_aside = past.as_ref().map(is_set_aside);
        let mut disagreements = Listed {
            id,
            step,
            set_aside,
            is_kept: self.retention == Retention::Kept,
        }
        .contradictions(&self.own);
        let times = commit.trajectories.iter().filter(|of| **of == id).count();
        if times > 1 {
            disagreements.push(format!(
                "the record of step {step} lists {id} {times} times"
            ));
        }
        let end = self.end();
        let without = set_aside.or(self.own.stored.as_ref().map(|_| end.is_none()));
        let mut witness = told(past.as_ref(), end, lease.unwrap_or(0));
        let why = match without {
            Some(true) => format!("it was set aside: step {step} was trained without it"),
            Some(false) => format!("step {step} was trained on it"),
            None => format!(
                "step {step} consumed it; a former build did not put on record whether it was trained on, and nothing of it is stored"
            ),
        };
        let state = match without {
            Some(true) => WitnessState::SetAside,
            Some(false) | None => WitnessState::Consumed,
        };
        (witness.state, witness.why) = (state.word().to_owned(), why);
        witness.step = Some(step.0);
        witness.committed_ms = commit.figures.at.millis();
        witness.generation = commit.figures.generation.0;
        witness.record = commit.figures.record;
        witness.disagreements = disagreements;
        witness
    }

    fn end(&self) -> Option<&Finish> {
        self.own.stored.as_ref().and_then(|s| s.finished.as_ref())
    }

    /// No step's record lists it.
    fn not_listed(&self) -> Option<v1::Witness> {
        let (id, batch) = (self.id, Step(self.id.batch));
        // Batches count from 1, as steps do.
        if batch == Step(0) {
            return None;
        }
        let named = self.own.consumed_by;
        if let Some(by) = named.filter(|by| *by != batch || self.commit.is_some()) {
            let text = format!(
                "the own record of {id} names step {by}, and no record of that step lists it"
            );
            return Some(contradicted(WitnessState::Consumed, text));
        }
        if self.commit.is_some() {
            self.own.stored.as_ref()?;
            let text = format!(
                "step {batch} is committed and its record does not list {id}, of which turns are stored"
            );
            return Some(contradicted(WitnessState::Finished, text));
        }
        if batch <= self.recorded {
            return Some(said(WitnessState::Consumed, self.without_record(batch)));
        }
        let witness = self.open()?;
        let consumes = [WitnessState::SetAside, WitnessState::Committing].map(Some);
        let consumes = consumes.contains(&witness.state());
        match named {
            Some(by) if !consumes => {
                let text =
                    format!("the own record of {id} names step {by}, which is not committed");
                Some(v1::Witness {
                    disagreements: vec![text],
                    ..witness
                })
            }
            _ => Some(witness),
        }
    }

    /// Of one whose step is committed, and has no record in the journal.
    fn without_record(&self, step: Step) -> String {
        let begin = self.extent.map(|(first, _)| first);
        match (self.own.consumed_by, begin.filter(|first| step < *first)) {
            (Some(by), Some(first)) => format!(
                "its own record names step {by}; the journal begins with step {first} and has no record of that one"
            ),
            (None, Some(first)) => {
                format!("no longer kept: the journal begins with step {first}")
            }
            (Some(by), None) => {
                format!("its own record names step {by}, of which the journal has no record")
            }
            (None, None) => {
                format!("step {step} is committed, and the journal has no record of it")
            }
        }
    }

    /// What the controller has of it.
    fn open(&self) -> Option<v1::Witness> {
        let batch = self.id.batch;
        let t = match &self.live.open {
            Some(t) => t.as_ref()?,
            None if batch <= self.live.committed.0 => {
                let why =
                    format!("the record of step {batch}, which consumes it, is being written");
                return Some(said(WitnessState::Committing, why));
            }
            None => {
                return Some(said(
                    WitnessState::NotBegun,
                    format!("batch {batch} is not open yet"),
                ));
            }
        };
        let holder = t
            .past
            .holder()
            .map_or_else(String::new, |who| who.to_string());
        let mut witness = told(Some(&t.past), self.end(), t.lease);
        match t.place {
            Place::Pending(until) => {
                let again = t
                    .past
                    .setbacks()
                    .last()
                    .map_or("", |s| match s.kind.throws_away() {
                        true => ", to be generated again from its prompt",
                        false => ", to be gone on with from what is stored",
                    });
                witness.state = WitnessState::Waiting.word().to_owned();
                witness.why = format!("it waits to be handed out{again}");
                witness.waits_until_ms = until.millis();
            }
            Place::Leased(Incarnation(incarnation)) => {
                witness.state = WitnessState::Generating.word().to_owned();
                let who = match holder.is_empty() {
                    true => "an agent worker",
                    false => &holder,
                };
                witness.why = format!("{who} generates it");
                // A lease's number is the time at which it was given, unless two were given in one instant.
                witness.since_ms = t.lease / 1000;
                (witness.agent, witness.incarnation) = (holder, incarnation);
            }
            Place::Finished { .. } => {
                witness.state = WitnessState::Finished.word().to_owned();
                witness.why = format!("it is at its end, and step {batch} is not committed");
            }
            Place::SetAside => {
                witness.state = WitnessState::SetAside.word().to_owned();
                witness.why =
                    format!("step {batch}, which is not committed, will be trained without it");
            }
        }
        Some(witness)
    }
}

fn said(state: WitnessState, why: String) -> v1::Witness {
    v1::Witness {
        state: state.word().to_owned(),
        why,
        ..Default::default()
    }
}

fn contradicted(state: WitnessState, text: String) -> v1::Witness {
    v1::Witness {
        disagreements: vec![text],
        ..said(state, "its records contradict each other".to_owned())
    }
}

/// Attempts, who brought it to its end, and what befell it. `lease` is the one that was given last.
fn told(past: Option<&Past>, end: Option<&Finish>, lease: u64) -> v1::Witness {
    v1::Witness {
        attempt: past
            .zip(end)
            .and_then(|(past, end)| past.attempt_of(end.lease, lease)),
        attempts: past.and_then(Past::attempts),
        incarnation: end.map_or(0, |end| end.agent.0),
        setbacks: past.map_or_else(Vec::new, |past| {
            past.setbacks().iter().map(setback).collect()
        }),
        setbacks_left_out: past.map_or(0, Past::left_out),
        ..Default::default()
    }
}

fn setback(s: &Setback) -> v1::Setback {
    v1::Setback {
        attempt: s.attempt.filter(|attempt| *attempt > 0),
        kind: s.kind.name().to_owned(),
        why: s.why.clone(),
        agent: s.holder.map_or_else(String::new, |who| who.to_string()),
        incarnation: s.incarnation.0,
        at_ms: s.at.millis(),
        thrown_away: s.kind.throws_away(),
    }
}
