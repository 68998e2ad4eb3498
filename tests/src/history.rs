//! The history of what controllers answered, and whether the store that is left in the end agrees with it.
//!
//! Threads ask every controller again and again while a test strikes them, and note each answer with the times between
//! which it was given, who gave it, and in which term. Then:
//!
//! - what was shown is there: steps that were committed, turns and ends of trajectories, incidents;
//! - each step is committed once, in order, and no trajectory is consumed by two steps;
//! - a leader's answer shows all that was shown before by it, and by leaders before it;
//! - a request that was done is done: whoever leads later shows it, until another request takes it back;
//! - nobody does what it is asked after a leader of a later term answered.
use robust_shared::core::Record;
use robust_shared::ids::{Step, TrajectoryId};
use robustd::store::{Store, StoredTrajectory};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Microseconds since 1970, as records have them.
pub fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.expect("it is later than 1970").as_micros()).expect("it is before 584542")
}

/// When something was asked and answered, by whom, and in which term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The controller.
    pub by: usize,
    /// The number of the last term in which it had led until then.
    pub epoch: u64,
    /// When it was asked.
    pub asked_us: u64,
    /// When it had answered.
    pub answered_us: u64,
}

/// A status that a leader showed.
#[derive(Clone, Debug)]
pub struct Shown {
    /// When and by whom.
    pub answer: Answered,
    /// The last step that was committed.
    pub step: u64,
    /// Whether the job's first rollout was quarantined: the register that requests of the test write.
    pub quarantined: Option<bool>,
}

/// A request to set the register.
#[derive(Clone, Copy, Debug)]
struct Request {
    answer: Answered,
    value: bool,
    /// Whether it was done; a request that nobody answered may have been.
    done: bool,
}

/// What was shown of a trajectory.
#[derive(Clone, Debug, PartialEq)]
struct Turns {
    count: usize,
    tokens: usize,
    /// Its reward, if it had ended.
    ended: Option<f64>,
}

#[derive(Debug, Default)]
struct Seen {
    shown: Vec<Shown>,
    requests: Vec<Request>,
    turns: BTreeMap<TrajectoryId, Turns>,
    incidents: BTreeSet<u64>,
}

/// All that was answered.
#[derive(Debug, Default)]
pub struct History {
    seen: Mutex<Seen>,
}

/// What does not agree.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Disagreement {
    /// Turns and ends of trajectories that were shown and are not there.
    pub turns_lost: usize,
    /// Trajectories that two steps consumed.
    pub double_consumed: usize,
    /// Everything that is wrong, in words.
    pub all: Vec<String>,
}

impl History {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A leader's status.
    pub fn note_status(&self, answer: Answered, status: &Value) {
        let of = |role: &Value| role["role"] == "rollout" && role["index"] == 0;
        let all = status["roles"].as_array();
        let register = all.and_then(|all| all.iter().find(|role| of(role)));
        let incidents = status["incidents"].as_array().into_iter().flatten();
        let mut seen = self.seen();
        seen.incidents
            .extend(incidents.filter_map(|incident| incident["id"].as_u64()));
        seen.shown.push(Shown {
            answer,
            step: status["step"].as_u64().unwrap_or(0),
            quarantined: register.and_then(|role| role["quarantined"].as_bool()),
        });
    }

    /// What `traj ls --json` printed.
    pub fn note_turns(&self, text: &str) {
        let lines = text.lines().filter_map(|l| serde_json::from_str(l).ok());
        let mut seen = self.seen();
        for line in lines {
            let line: Value = line;
            let number = |key: &str| line[key].as_u64().unwrap_or(0);
            let small = |key: &str| u32::try_from(number(key)).unwrap_or(u32::MAX);
            let id = TrajectoryId {
                batch: number("batch"),
                group: small("group"),
                member: small("member"),
            };
            let count = |key: &str| usize::try_from(number(key)).unwrap_or(usize::MAX);
            let turns = Turns {
                count: count("turn_count"),
                tokens: count("tokens"),
                ended: line["reward"].as_f64(),
            };
            seen.turns.insert(id, turns);
        }
    }

    /// A request to quarantine the first rollout, or to readmit it, and whether it was done.
    pub fn note_request(&self, answer: Answered, value: bool, done: bool) {
        self.seen().requests.push(Request {
            answer,
            value,
            done,
        });
    }

    /// The first status that a leader of a later term showed since then.
    pub fn first_of_later(&self, epoch: u64, since_us: u64) -> Option<Shown> {
        let seen = self.seen();
        let mut later = seen
            .shown
            .iter()
            .filter(|s| s.answer.epoch > epoch && s.answer.answered_us > since_us);
        later.next().cloned()
    }

    /// The last status that was shown.
    pub fn last(&self) -> Option<Shown> {
        self.seen().shown.last().cloned()
    }

    /// How much there is to be compared: statuses, trajectories, requests that were done.
    pub fn extent(&self) -> (usize, usize, usize) {
        let seen = self.seen();
        let done = seen.requests.iter().filter(|r| r.done).count();
        (seen.shown.len(), seen.turns.len(), done)
    }

    /// Compares all of it with the store that is left.
    pub fn check(&self, store: &Store, per_step: usize) -> Disagreement {
        let seen = self.seen();
        let mut found = Disagreement::default();
        let consumed = consumed(store, per_step, &seen, &mut found);
        turns(store, &seen, &consumed, &mut found);
        let incidents = store.incidents().expect("its incidents");
        let kept: BTreeSet<u64> = incidents.iter().map(|i| i.id.0).collect();
        for missing in seen.incidents.difference(&kept) {
            found.says(format!("incident {missing} was shown and is not there"));
        }
        steps_in_order(&seen.shown, &mut found);
        requests(&seen, &mut found);
        found
    }
}

impl Disagreement {
    fn says(&mut self, what: String) {
        self.all.push(what);
    }
}

/// Each step once, in order, by so many trajectories that no other step consumed; and all that were shown.
fn consumed(
    store: &Store,
    per_step: usize,
    seen: &Seen,
    found: &mut Disagreement,
) -> BTreeMap<TrajectoryId, Step> {
    let journal = store.journal_since(0, usize::MAX).expect("its journal");
    let (mut last, mut by) = (0, BTreeMap::new());
    for (_, record) in journal {
        let Record::Committed {
            step, trajectories, ..
        } = record
        else {
            continue;
        };
        if step.0 != last + 1 {
            found.says(format!("step {step} was committed after step {last}"));
        }
        last = step.0;
        if trajectories.len() != per_step {
            let count = trajectories.len();
            found.says(format!("step {step} consumed {count} trajectories"));
        }
        for trajectory in trajectories {
            if let Some(before) = by.insert(trajectory, step) {
                found.double_consumed += 1;
                found.says(format!("{before} and {step} consumed {trajectory}"));
            }
        }
    }
    let shown = seen.shown.iter().map(|s| s.step).max().unwrap_or(0);
    if shown > last {
        found.says(format!(
            "step {shown} was shown, and {last} is the last one"
        ));
    }
    by
}

/// A trajectory that a step of long ago consumed is pruned from the store: its end counted.
fn turns(
    store: &Store,
    seen: &Seen,
    consumed: &BTreeMap<TrajectoryId, Step>,
    found: &mut Disagreement,
) {
    for (id, shown) in &seen.turns {
        let kept = store.trajectory(*id).expect("the store can be read");
        let is_there = match &kept {
            Some(kept) => has(kept, shown),
            None => consumed.contains_key(id),
        };
        if !is_there {
            found.turns_lost += 1;
            let kept = kept.map(|k| (k.turns.len(), k.finished.map(|f| f.reward)));
            found.says(format!("{id} was shown as {shown:?}, and is {kept:?}"));
        }
    }
}

fn has(kept: &StoredTrajectory, shown: &Turns) -> bool {
    let tokens = |turns: &[robust_proto::v1::Turn]| -> usize {
        let spans = turns.iter().flat_map(|turn| &turn.spans);
        spans.map(|span| span.ids.len()).sum()
    };
    let at_least = kept.turns.len() >= shown.count && tokens(&kept.turns) >= shown.tokens;
    let ended = kept.finished.as_ref().map(|finish| finish.reward);
    at_least && (shown.ended.is_none() || (shown.ended == ended && kept.turns.len() == shown.count))
}

/// So many answers before one are compared with it: all that are not minutes old.
const LOOKS_BACK: usize = 1000;

/// Whoever leads shows at least what was shown before it was asked, by itself or by leaders of earlier terms.
fn steps_in_order(shown: &[Shown], found: &mut Disagreement) {
    for (at, later) in shown.iter().enumerate() {
        let (asked, epoch) = (later.answer.asked_us, later.answer.epoch);
        let mut before = shown[at.saturating_sub(LOOKS_BACK)..at].iter().rev();
        let more = before.find(|earlier| {
            let was_known = earlier.answer.answered_us < asked && earlier.answer.epoch <= epoch;
            was_known && earlier.step > later.step
        });
        if let Some(more) = more {
            found.says(format!("{more:?} came before {later:?}"));
        }
    }
}

/// A leader shows its status as it was so long ago at most, on a busy machine; one of a later term begins with what is kept.
const STATUS_AGE_US: u64 = 2_000_000;

fn requests(seen: &Seen, found: &mut Disagreement) {
    for (at, request) in seen.requests.iter().enumerate().filter(|(_, r)| r.done) {
        let until = seen.requests.get(at + 1).map(|next| next.answer.asked_us);
        let shows_otherwise = seen.shown.iter().find(|shown| {
            let age = match shown.answer.epoch == request.answer.epoch {
                true => STATUS_AGE_US,
                false => 0,
            };
            shown.answer.asked_us > request.answer.answered_us + age
                && until.is_none_or(|until| shown.answer.answered_us < until)
                && shown.answer.epoch >= request.answer.epoch
                && shown.quarantined.is_some_and(|q| q != request.value)
        });
        if let Some(shown) = shows_otherwise {
            found.says(format!("{request:?} was done, and {shown:?} shows it not"));
        }
        let later = seen.shown.iter().find(|shown| {
            shown.answer.epoch > request.answer.epoch
                && shown.answer.answered_us < request.answer.asked_us
        });
        if let Some(shown) = later {
            found.says(format!("{request:?} was done, after {shown:?}"));
        }
    }
}
