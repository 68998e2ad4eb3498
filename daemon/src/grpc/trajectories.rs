//! Stored trajectories for operators' tools.
use super::words::unreadable;
use crate::store::{Store, StoreError, StoredTrajectory};
use crate::texts::Texts;
use crate::witness::{AccountError, Live, account, witness};
use robust_proto::v1;
use robust_shared::core::staleness;
use robust_shared::ids::{Step, TrajectoryId, WeightVersion};
use robust_shared::wire::{TrajectoryState, Word as _};
use tokio::sync::mpsc::Sender;
use tonic::Status;

/// Trajectories read from the store at a time.
const PAGE: usize = 64;

/// Which trajectories are asked for.
pub struct Wanted {
    which: Which,
    content: bool,
    /// Of the tokens after so many.
    text_from: Option<u64>,
}

enum Which {
    /// This one.
    One(TrajectoryId),
    /// All of a group.
    Group { batch: u64, group: u32 },
    /// Those that are stored.
    All {
        from: TrajectoryId,
        last_batch: u64,
        state: Option<TrajectoryState>,
    },
}

/// Trajectories that are asked for by their names, with what the controller has of each, where one runs.
pub type Named = Vec<(TrajectoryId, Option<Live>)>;

impl Wanted {
    /// Refuses a state that is none.
    pub fn from_wire(request: &v1::TrajectoriesRequest) -> Result<Self, Status> {
        let state = match (request.state.as_str(), request.state()) {
            ("", _) => None,
            (_, Some(state)) => Some(state),
            (other, None) => {
                let known: Vec<_> = TrajectoryState::ALL.iter().map(|s| s.word()).collect();
                return Err(Status::invalid_argument(format!(
                    "unknown state `{other}`; states are {}",
                    known.join(", ")
                )));
            }
        };
        let batch = request.from_batch;
        let which = match (request.trajectory, request.group) {
            (Some(key), _) => Which::One(TrajectoryId::from_key(key)),
            (None, Some(group)) => Which::Group { batch, group },
            (None, None) => Which::All {
                from: TrajectoryId {
                    batch,
                    group: 0,
                    member: 0,
                },
                last_batch: match request.to_batch {
                    0 => u64::MAX,
                    batch => batch,
                },
                state,
            },
        };
        Ok(Self {
            which,
            content: request.content,
            text_from: (request.content && request.text).then_some(request.text_from),
        })
    }

    /// Those that are asked for by their names, where a group has so many; none: those that are stored.
    pub fn named(&self, members: u32) -> Option<Vec<TrajectoryId>> {
        match self.which {
            Which::One(id) => Some(vec![id]),
            Which::Group { batch, group } => {
                let id = |member| TrajectoryId {
                    batch,
                    group,
                    member,
                };
                Some((0..members).map(id).collect())
            }
            Which::All { .. } => None,
        }
    }

    /// Whether text is to be made.
    pub fn has_text(&self) -> bool {
        self.text_from.is_some()
    }

    /// Sends them in order until there are no more or nobody listens. Blocks. `named` are those that are asked for by
    /// their names.
    pub fn send(
        &self,
        store: &Store,
        texts: &Texts,
        named: Option<Named>,
        to: &Sender<Result<v1::Trajectory, Status>>,
    ) {
        let Some(named) = named else {
            return self.send_all(store, texts, to);
        };
        for (id, live) in named {
            let read = self.one(store, texts, id, live).transpose();
            let Some(read) = read.map(|shown| shown.map_err(unreadable)) else {
                continue;
            };
            let failed = read.is_err();
            // The reader may have left.
            if to.blocking_send(read).is_err() || failed {
                return;
            }
        }
    }

    /// One with what all records say of it; none: the job has no such trajectory.
    fn one(
        &self,
        store: &Store,
        texts: &Texts,
        id: TrajectoryId,
        live: Option<Live>,
    ) -> Result<Option<v1::Trajectory>, StoreError> {
        let Some(witness) = witness(store, id, live)? else {
            return Ok(None);
        };
        let stored = store.trajectory(id)?.unwrap_or_default();
        let mut shown = self.shown(texts, id, stored);
        // One of which nothing is stored is no running one.
        if shown.turn_count == 0 && shown.tokens == 0 {
            shown.state.clone_from(&witness.state);
        }
        shown.witness = Some(witness);
        Ok(Some(shown))
    }

    fn send_all(&self, store: &Store, texts: &Texts, to: &Sender<Result<v1::Trajectory, Status>>) {
        let Which::All {
            from,
            last_batch,
            state,
        } = self.which
        else {
            return;
        };
        let mut next = Some(from);
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
                if id.batch > last_batch {
                    return;
                }
                if state.is_some_and(|state| state_of(&stored) != state) {
                    continue;
                }
                if to.blocking_send(Ok(self.shown(texts, id, stored))).is_err() {
                    return;
                }
            }
        }
    }

    fn shown(&self, texts: &Texts, id: TrajectoryId, stored: StoredTrajectory) -> v1::Trajectory {
        let text = self.text_from.map(|from| texts.pieces(&stored, from));
        let mut shown = shown(id, stored, self.content);
        match text {
            Some(Ok(pieces)) => shown.pieces = pieces,
            Some(Err(why)) => shown.no_text = why,
            None => {}
        }
        shown
    }
}

fn state_of(stored: &StoredTrajectory) -> TrajectoryState {
    match (stored.consumed_by, &stored.finished) {
        (Some(_), Some(_)) => TrajectoryState::Consumed,
        // Its step is not trained on it.
        (Some(_), None) => TrajectoryState::SetAside,
        (None, Some(_)) => TrajectoryState::Finished,
        (None, None) => TrajectoryState::Running,
    }
}

fn shown(id: TrajectoryId, stored: StoredTrajectory, content: bool) -> v1::Trajectory {
    let whole = || stored.turns.iter().flat_map(|turn| &turn.spans);
    let spans = || whole().chain(&stored.running);
    let ended = stored.finished.as_ref().map(|end| end.oldest_version);
    let oldest = ended.or_else(|| spans().map(|span| span.version).min());
    let consumed_by = stored.consumed_by.map(|step| step.0);
    let state = state_of(&stored);
    v1::Trajectory {
        batch: id.batch,
        group: id.group,
        member: id.member,
        state: state.word().to_owned(),
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
        pieces: Vec::new(),
        no_text: String::new(),
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_proto::v1::{Span, Turn};
    use robust_shared::job::Job;
    use std::path::Path;
    use tempfile::TempDir;
    use tokio::sync::mpsc::channel;

    /// A store with members 0 and 1 of group 2 of batch 1, and one of another group.
    fn stored() -> (TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path()).unwrap();
        for (group, member) in [(2, 0), (2, 1), (3, 0)] {
            let id = TrajectoryId {
                batch: 1,
                group,
                member,
            };
            let span = Span {
                ids: vec![3, 7, 4],
                logprobs: vec![-0.5; 3],
                version: 9,
            };
            let turn = Turn {
                spans: vec![span],
                tool_ids: vec![5, 8, 6],
                ..Turn::default()
            };
            store.append_turn(id, vec![1, 10], turn).wait().unwrap();
        }
        (dir, store)
    }

    /// What is answered where a prompt has two members and no controller runs.
    fn asked(store: &Store, request: &v1::TrajectoriesRequest) -> Vec<v1::Trajectory> {
        let tokenizer = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../fixtures/tokenizers/arith/tokenizer.json");
        let job = format!(
            "[data]\nprompts = \"p\"\ntokenizer = \"{}\"\n",
            tokenizer.display()
        );
        let texts = Texts::of(&Job::parse(&job, Path::new("job.toml")).unwrap());
        let wanted = Wanted::from_wire(request).unwrap();
        let named = wanted.named(2);
        let named = named.map(|ids| ids.into_iter().map(|id| (id, None)).collect());
        let (to, mut answers) = channel(64);
        wanted.send(store, &texts, named, &to);
        drop(to);
        std::iter::from_fn(|| answers.blocking_recv())
            .map(Result::unwrap)
            .collect()
    }

    #[test]
    fn a_group_is_all_that_is_sent_of_its_batch_and_each_of_it_with_its_witness() {
        let (_dir, store) = stored();
        let request = v1::TrajectoriesRequest {
            from_batch: 1,
            to_batch: 1,
            group: Some(2),
            ..Default::default()
        };
        let all = asked(&store, &request);
        let names: Vec<(u32, u32)> = all.iter().map(|t| (t.group, t.member)).collect();
        assert_eq!(names, [(2, 0), (2, 1)]);
        let newest = |t: &v1::Trajectory| t.witness.as_ref().map(|w| w.newest_version);
        assert!(all.iter().all(|t| newest(t) == Some(9)), "{all:?}");
        assert!(
            all.iter()
                .all(|t| t.turns.is_empty() && t.pieces.is_empty())
        );
    }

    #[test]
    fn text_is_sent_with_content_to_whoever_wants_it_and_only_what_is_not_known() {
        let (_dir, store) = stored();
        let id = TrajectoryId {
            batch: 1,
            group: 2,
            member: 1,
        };
        let ask = |content, text, text_from| {
            let request = v1::TrajectoriesRequest {
                trajectory: Some(id.key()),
                content,
                text,
                text_from,
                ..Default::default()
            };
            let mut all = asked(&store, &request);
            all.pop().unwrap().pieces
        };
        let all = [
            "<bos>", "3", "<call>", "0", "</call>", "<res>", "1", "</res>",
        ];
        assert_eq!(ask(true, true, 0), all);
        assert_eq!(ask(true, true, 6), all[6..]);
        assert_eq!(ask(true, false, 0), [""; 0]);
        assert_eq!(ask(false, true, 0), [""; 0]);
    }

    #[test]
    fn without_a_name_those_of_a_state_are_sent_group_by_group() {
        let (_dir, store) = stored();
        let ask = |state: &str| {
            let request = v1::TrajectoriesRequest {
                state: state.to_owned(),
                ..Default::default()
            };
            asked(&store, &request).len()
        };
        assert_eq!((ask(""), ask("running"), ask("consumed")), (3, 3, 0));
    }
}
