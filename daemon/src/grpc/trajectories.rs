//! Stored trajectories for operators' tools.
use super::control::unreadable;
use crate::store::{Store, StoreError, StoredTrajectory};
use crate::witness::{AccountError, Live, account, witness};
use robust_proto::v1;
use robust_shared::core::staleness;
use robust_shared::ids::{Step, TrajectoryId, WeightVersion};
use tokio::sync::mpsc::Sender;
use tonic::Status;

/// Trajectories read from the store at a time.
const PAGE: usize = 64;

/// Which trajectories are asked for.
pub struct Wanted {
    from: TrajectoryId,
    last_batch: u64,
    only: Option<TrajectoryId>,
    state: Option<&'static str>,
    content: bool,
}

impl Wanted {
    /// Refuses a state that is none.
    pub fn from_wire(request: &v1::TrajectoriesRequest) -> Result<Self, Status> {
        let state = match request.state.as_str() {
            "" => None,
            "running" => Some("running"),
            "finished" => Some("finished"),
            "consumed" => Some("consumed"),
            "set_aside" => Some("set_aside"),
            other => {
                return Err(Status::invalid_argument(format!(
                    "unknown state `{other}`; states are running, finished, consumed, set_aside"
                )));
            }
        };
        let only = request.trajectory.map(TrajectoryId::from_key);
        let first = TrajectoryId {
            batch: request.from_batch,
            group: 0,
            member: 0,
        };
        Ok(Self {
            from: first,
            last_batch: match request.to_batch {
                0 => u64::MAX,
                batch => batch,
            },
            only,
            state,
            content: request.content,
        })
    }

    /// The only one that is asked for.
    pub fn only(&self) -> Option<TrajectoryId> {
        self.only
    }

    /// Sends them in order until there are no more or nobody listens. Blocks. `live` is what the controller has of the only
    /// one, where one runs.
    pub fn send(
        &self,
        store: &Store,
        live: Option<Live>,
        to: &Sender<Result<v1::Trajectory, Status>>,
    ) {
        let Some(id) = self.only else {
            return self.send_all(store, to);
        };
        let read = || {
            let witness = witness(store, id, live)?;
            let stored = store.trajectory(id)?;
            Ok::<_, StoreError>(witness.map(|witness| {
                let stored = stored.unwrap_or_default();
                let state = witness.state.clone();
                let mut shown = shown(id, stored, self.content);
                // One of which nothing is stored is no running one.
                if shown.turn_count == 0 && shown.tokens == 0 {
                    shown.state = state;
                }
                shown.witness = Some(witness);
                shown
            }))
        };
        // The reader may have left.
        let _ = match read() {
            Ok(Some(shown)) => to.blocking_send(Ok(shown)),
            Ok(None) => Ok(()),
            Err(error) => to.blocking_send(Err(unreadable(error))),
        };
    }

    fn send_all(&self, store: &Store, to: &Sender<Result<v1::Trajectory, Status>>) {
        let mut next = Some(self.from);
        while let Some(from) = next {
            let page = match store.trajectories_from(from, PAGE) {
                Ok(page) => page,
                Err(error) => {
                    // The reader may have left.
                    let _ = to.blocking_send(Err(unreadable(error)));
                    return;
                }
            };
            next = match page.last() {
                Some((last, _)) if page.len() == PAGE => {
                    last.key().checked_add(1).map(TrajectoryId::from_key)
                }
                _ => None,
            };
            for (id, stored) in page {
                if id.batch > self.last_batch {
                    return;
                }
                let shown = shown(id, stored, self.content);
                let fits = self.state.is_none_or(|state| shown.state == state);
                if fits && to.blocking_send(Ok(shown)).is_err() {
                    return;
                }
            }
        }
    }
}

fn shown(id: TrajectoryId, stored: StoredTrajectory, content: bool) -> v1::Trajectory {
    let whole = || stored.turns.iter().flat_map(|turn| &turn.spans);
    let spans = || whole().chain(&stored.running);
    let ended = stored.finished.as_ref().map(|end| end.oldest_version);
    let oldest = ended.or_else(|| spans().map(|span| span.version).min());
    let consumed_by = stored.consumed_by.map(|step| step.0);
    let state = match (consumed_by, &stored.finished) {
        (Some(_), Some(_)) => "consumed",
        // Its step is not trained on it.
        (Some(_), None) => "set_aside",
        (None, Some(_)) => "finished",
        (None, None) => "running",
    };
    v1::Trajectory {
        batch: id.batch,
        group: id.group,
        member: id.member,
        state: state.to_owned(),
        turn_count: u32::try_from(stored.turns.len()).unwrap_or(u32::MAX),
        tokens: spans().map(|span| span.ids.len() as u64).sum(),
        oldest_version: oldest.unwrap_or(0),
        reward: stored.finished.as_ref().map(|f| f.reward),
        answer: stored.finished.map(|f| f.answer).unwrap_or_default(),
        consumed_by,
        // Its batch's number is that of the step that trains it.
        staleness: oldest.map(|oldest| staleness(id, WeightVersion(oldest))),
        prompt_ids: if content {
            stored.prompt_ids
        } else {
            Vec::new()
        },
        turns: if content { stored.turns } else { Vec::new() },
        running: if content { stored.running } else { Vec::new() },
        witness: None,
    }
}

/// Sends what entered a committed step until there is no more or nobody listens. Blocks.
pub fn send_step(store: &Store, step: Step, to: &Sender<Result<v1::StepAccount, Status>>) {
    let mut tell = |part| to.blocking_send(Ok(part)).is_ok();
    let told = account(store, step, &mut tell).map_err(|error| match error {
        AccountError::NotThere(why) => Status::not_found(why),
        AccountError::Store(error) => unreadable(error),
    });
    if let Err(status) = told {
        // The reader may have left.
        let _ = to.blocking_send(Err(status));
    }
}
