//! What entered a committed step, and how it came there.
use super::judge::{Listed, is_set_aside, spans, versions};
use super::{BETWEEN, LOOKS, told};
use crate::report::line;
use crate::store::{Committed, OwnRecord, Retention, Store, StoreError};
use robust_proto::v1;
use robust_shared::core::{Past, staleness};
use robust_shared::ids::{Step, TrajectoryId, WeightVersion};
use robust_shared::wire::TrajectoryState;
use std::collections::{BTreeMap, BTreeSet};

/// Trajectories in one part.
const PART: usize = 256;

/// Why there is no account of a step.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// It is not committed, or not in this store.
    #[error("{0}")]
    NotThere(String),
    /// Reading failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Tells the parts of a step's account until there are no more or `tell` says that nobody listens. Blocks.
pub fn account(
    store: &Store,
    step: Step,
    tell: &mut dyn FnMut(v1::StepAccount) -> bool,
) -> Result<(), AccountError> {
    let Some(commit) = store.commit(step)? else {
        return Err(not_there(store, step)?);
    };
    let retention = store.retention(step.0)?;
    if !tell(head(&commit, retention)) {
        return Ok(());
    }
    let account = Account::of(store, &commit);
    let mut doubted = Vec::new();
    let mut leases = commit.provenance.iter().flat_map(|p| &p.leases).copied();
    for ids in commit.trajectories.chunks(PART) {
        let mut part = v1::StepAccount::default();
        for id in ids {
            let lease = leases.next().unwrap_or(0);
            let (row, agrees) = account.of_one((*id, lease), retention)?;
            part.trajectories.push(row);
            doubted.extend((!agrees).then_some(*id));
        }
        if !tell(part) {
            return Ok(());
        }
    }
    for disagreements in account.contradictions(doubted)?.chunks(PART) {
        let part = v1::StepAccount {
            disagreements: disagreements.to_vec(),
            ..Default::default()
        };
        if !tell(part) {
            break;
        }
    }
    Ok(())
}

fn not_there(store: &Store, step: Step) -> Result<AccountError, StoreError> {
    Ok(AccountError::NotThere(match store.extent()? {
        _ if step == Step(0) => "there is no step 0: steps count from 1".to_owned(),
        None => format!("step {step} is not committed, nor is any other"),
        Some((_, last)) if step > last => {
            format!("step {step} is not committed; the last one that is has the number {last}")
        }
        Some((first, _)) if step < first => {
            format!("step {step} is no longer kept: the journal begins with step {first}")
        }
        Some(_) => format!(
            "the journal has no record of step {step}; `robustctl store check` looks at all of it"
        ),
    }))
}

fn head(commit: &Committed, retention: Retention) -> v1::StepAccount {
    let figures = &commit.figures;
    let mut seen = BTreeSet::new();
    let twice = commit.trajectories.iter().filter(|id| !seen.insert(**id));
    let step = figures.step;
    v1::StepAccount {
        step: step.0,
        at_ms: figures.at.millis(),
        generation: figures.generation.0,
        record: figures.record,
        line: Some(line(figures, figures.at.millis())),
        counted: commit.provenance.is_some(),
        not_kept_since: match retention {
            Retention::Removed { with } => with.map(|step| step.0),
            Retention::Kept | Retention::Unknown => None,
        },
        disagreements: twice
            .map(|id| format!("the record of step {step} lists {id} twice"))
            .collect(),
        ..Default::default()
    }
}

/// A step's record, with what befell each trajectory at hand.
struct Account<'a> {
    store: &'a Store,
    step: Step,
    befell: Option<BTreeMap<TrajectoryId, &'a Past>>,
    /// What befell all others.
    once: Past,
}

impl<'a> Account<'a> {
    fn of(store: &'a Store, commit: &'a Committed) -> Self {
        let provenance = commit.provenance.as_ref();
        let befell = provenance.map(|p| p.befell.iter().map(|(id, past)| (*id, past)).collect());
        Self {
            store,
            step: commit.figures.step,
            befell,
            once: Past::once(),
        }
    }

    fn past(&self, id: TrajectoryId) -> Option<&Past> {
        let befell = self.befell.as_ref()?;
        Some(befell.get(&id).copied().unwrap_or(&self.once))
    }

    fn listed(&self, id: TrajectoryId, retention: Retention) -> Listed {
        Listed {
            id,
            step: self.step,
            set_aside: self.past(id).map(is_set_aside),
            is_kept: retention == Retention::Kept,
        }
    }

    /// One of its trajectories, and whether nothing seems to contradict that.
    fn of_one(
        &self,
        (id, lease): (TrajectoryId, u64),
        retention: Retention,
    ) -> Result<(v1::StepTrajectory, bool), StoreError> {
        let listed = self.listed(id, retention);
        let mut own = self.store.own_record(id)?;
        if !listed.contradictions(&own).is_empty() {
            // A commit may have fallen between the readings of its parts.
            own = self.store.own_record(id)?;
        }
        let agrees = listed.contradictions(&own).is_empty();
        Ok((row((id, lease), &own, self.past(id)), agrees))
    }

    /// What contradicts these, looked at again: all at once, since a step may have thousands of them.
    fn contradictions(&self, mut doubted: Vec<TrajectoryId>) -> Result<Vec<String>, StoreError> {
        let mut found = Vec::new();
        for _ in 1..LOOKS {
            if doubted.is_empty() {
                break;
            }
            std::thread::sleep(BETWEEN);
            // A later step may have removed them meanwhile.
            let retention = self.store.retention(self.step.0)?;
            let mut still = Vec::new();
            found.clear();
            for id in doubted {
                let own = self.store.own_record(id)?;
                let against = self.listed(id, retention).contradictions(&own);
                still.extend((!against.is_empty()).then_some(id));
                found.extend(against);
            }
            doubted = still;
        }
        Ok(found)
    }
}

fn row(
    (id, lease): (TrajectoryId, u64),
    own: &OwnRecord,
    past: Option<&Past>,
) -> v1::StepTrajectory {
    let stored = own.stored.as_ref();
    let end = stored.and_then(|s| s.finished.as_ref());
    let (oldest, newest) = stored.map_or((None, None), versions);
    let v1::Witness {
        attempt,
        attempts,
        incarnation,
        setbacks,
        setbacks_left_out,
        ..
    } = told(past, end, lease);
    let set_aside = past.map_or(stored.is_some() && end.is_none(), is_set_aside);
    let state = match set_aside {
        true => TrajectoryState::SetAside,
        false => TrajectoryState::Consumed,
    };
    v1::StepTrajectory {
        batch: id.batch,
        group: id.group,
        member: id.member,
        state: state.word().to_owned(),
        kept: stored.is_some(),
        reward: end.map(|end| end.reward),
        oldest_version: oldest,
        newest_version: newest,
        staleness: oldest.map(|oldest| staleness(id, WeightVersion(oldest))),
        attempt,
        attempts,
        turn_count: stored.map_or(0, |s| u32::try_from(s.turns.len()).unwrap_or(u32::MAX)),
        tokens: stored.map_or(0, |s| spans(s).map(|span| span.ids.len() as u64).sum()),
        incarnation,
        setbacks,
        setbacks_left_out,
    }
}
