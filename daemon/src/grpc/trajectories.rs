//! Stored trajectories for operators' tools.
use super::control::unreadable;
use crate::store::{Store, StoredTrajectory};
use robust_proto::v1;
use robust_shared::core::staleness;
use robust_shared::ids::{TrajectoryId, WeightVersion};
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
            other => {
                return Err(Status::invalid_argument(format!(
                    "unknown state `{other}`; states are running, finished, consumed"
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
            from: only.unwrap_or(first),
            last_batch: match (only, request.to_batch) {
                (Some(id), _) => id.batch,
                (None, 0) => u64::MAX,
                (None, batch) => batch,
            },
            only,
            state,
            content: request.content,
        })
    }

    /// Sends them in order until there are no more or nobody listens. Blocks.
    pub fn send(&self, store: &Store, to: &Sender<Result<v1::Trajectory, Status>>) {
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
                if id.batch > self.last_batch || self.only.is_some_and(|only| only != id) {
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
    }
}
