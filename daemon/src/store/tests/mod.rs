//! Of what the store promises; `crash` and `failure` strike it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod crash;
mod failure;
mod history;
mod model;
mod notes;
mod open;
mod power;
mod schema;
mod spans;

use super::keys::Key;
use super::*;
use robust_proto::v1::{Span, Turn};
use robust_shared::core::{EntryKey, Event, Record, Severity, StepMetrics};
use robust_shared::ids::{Generation, Incarnation, InstanceId, Role, Step, TrajectoryId};
use tempfile::TempDir;

fn fresh() -> (TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let (store, note) = Store::open(dir.path()).unwrap();
    assert_eq!(note, None);
    (dir, store)
}

/// A change of the state that is about one value, whatever was remembered beside it.
fn state(value: &[u8]) -> Remembered {
    Remembered {
        puts: vec![(STATE, value.to_vec())],
        ..Remembered::default()
    }
}

/// One that only its writer reads.
const STATE: Key = Key::Shard(1, 0);

/// That value; none where nothing is remembered.
fn state_of(store: &Store) -> Option<Vec<u8>> {
    let all = store.remembered().unwrap();
    all.into_iter()
        .find(|(key, _)| *key == STATE)
        .map(|(_, value)| value)
}

fn id(batch: u64, member: u32) -> TrajectoryId {
    TrajectoryId {
        batch,
        group: 0,
        member,
    }
}

fn turn(index: u32, tokens: usize) -> Turn {
    let ids = (0..tokens as u32).map(|i| i * 31 + index).collect();
    let spans = vec![Span {
        ids,
        logprobs: vec![-0.5; tokens],
        version: 3,
    }];
    Turn {
        index,
        spans,
        tool_call: "1+1".to_owned(),
        ..Turn::default()
    }
}

fn finish(turns: u32) -> Finish {
    Finish {
        reward: 1.0,
        answer: "2".to_owned(),
        oldest_version: 3,
        turns,
        ..Finish::default()
    }
}

fn committed(step: u64, trajectories: Vec<TrajectoryId>) -> Record {
    let metrics = StepMetrics {
        reward: 0.5,
        loss: f64::NAN,
        ..StepMetrics::default()
    };
    Record::Committed {
        step: Step(step),
        generation: Generation(1),
        trajectories,
        metrics,
        provenance: None,
    }
}

fn issued(n: u64) -> Record {
    let id = InstanceId {
        role: Role::Rollout,
        index: 0,
    };
    Record::Issued {
        id,
        incarnation: Incarnation(n),
    }
}

fn store_finished(store: &Store, trajectory: TrajectoryId) {
    store
        .append_turn(trajectory, vec![1, 2], turn(0, 3))
        .wait()
        .unwrap();
    store.finish(trajectory, finish(1)).wait().unwrap();
}

#[test]
fn a_trajectory_reads_back_as_it_was_written() {
    let (dir, store) = fresh();
    let which = id(1, 0);
    assert_eq!(store.trajectory(which).unwrap(), None);
    // Longer than several parts of a value.
    let long = turn(1, 20_000);
    store
        .append_turn(which, vec![7, 8, 9], turn(0, 4))
        .wait()
        .unwrap();
    store
        .append_turn(which, vec![], long.clone())
        .wait()
        .unwrap();
    store.finish(which, finish(2)).wait().unwrap();
    drop(store);
    let (store, _) = Store::open(dir.path()).unwrap();
    let expected = StoredTrajectory {
        prompt_ids: vec![7, 8, 9],
        turns: vec![turn(0, 4), long],
        running: vec![],
        finished: Some(finish(2)),
        consumed_by: None,
    };
    assert_eq!(store.trajectory(which).unwrap(), Some(expected));
    assert_eq!(
        store.finished_unconsumed(Step(0)).unwrap(),
        [(which, finish(2))]
    );
}

#[test]
fn of_two_different_turns_the_first_stays_and_the_same_turn_may_come_again() {
    let (_dir, store) = fresh();
    let which = id(1, 0);
    let append = |t: Turn| store.append_turn(which, vec![1], t);
    assert_eq!(append(turn(0, 3)).wait().unwrap(), Appended::Stored);
    assert_eq!(append(turn(0, 3)).wait().unwrap(), Appended::Repeated);
    assert_eq!(append(turn(0, 4)).wait().unwrap(), Appended::Already);
    assert_eq!(
        store.trajectory(which).unwrap().unwrap().turns,
        [turn(0, 3)]
    );
    assert_eq!(
        store.finish(which, finish(1)).wait().unwrap(),
        Appended::Stored
    );
    assert_eq!(
        store.finish(which, finish(1)).wait().unwrap(),
        Appended::Repeated
    );
    let other = Finish {
        reward: 0.0,
        ..finish(1)
    };
    assert_eq!(
        store.finish(which, other).wait().unwrap(),
        Appended::Already
    );
    assert_eq!(
        store.trajectory(which).unwrap().unwrap().finished,
        Some(finish(1))
    );
}

#[test]
fn a_gap_a_late_turn_and_a_wrong_count_are_refused_in_words() {
    let (_dir, store) = fresh();
    let which = id(1, 0);
    let refusal = |d: Durable<Appended>| {
        let error = d.wait().unwrap_err();
        assert!(error.is_refusal());
        error.to_string()
    };
    assert_eq!(
        refusal(store.append_turn(which, vec![1], turn(1, 3))),
        "trajectory 1.0.0: turn 1 cannot be stored before turn 0"
    );
    store
        .append_turn(which, vec![1], turn(0, 3))
        .wait()
        .unwrap();
    assert_eq!(
        refusal(store.finish(which, finish(2))),
        "trajectory 1.0.0 cannot be finished: 1 turns stored, 2 named"
    );
    store.finish(which, finish(1)).wait().unwrap();
    assert_eq!(
        refusal(store.append_turn(which, vec![1], turn(1, 3))),
        "trajectory 1.0.0 is finished; turn 1 comes too late"
    );
}

/// I-3: its step consumes it and is never trained on it, not when it is trained again either.
#[test]
fn one_that_is_set_aside_is_consumed_by_its_step_without_an_end_that_came_too_late() {
    let (dir, store) = fresh();
    store_finished(&store, id(1, 0));
    store_finished(&store, id(1, 1));
    let set_aside = Record::SetAside {
        trajectory: id(1, 1),
        engines: Vec::new(),
    };
    store.record(vec![set_aside], state(b"one")).wait().unwrap();
    let finished = store.finished_unconsumed(Step(0)).unwrap();
    assert_eq!(finished, [(id(1, 0), finish(1))]);
    let all = vec![id(1, 0), id(1, 1)];
    store
        .record(vec![committed(1, all)], state(b"two"))
        .wait()
        .unwrap();
    drop(store);
    let (store, _) = Store::open(dir.path()).unwrap();
    assert_eq!(store.consumed_by(Step(1)).unwrap(), [id(1, 0)]);
    let stored = store.trajectory(id(1, 1)).unwrap().unwrap();
    assert_eq!((stored.finished, stored.consumed_by), (None, Some(Step(1))));
    assert_eq!(
        stored.turns,
        [turn(0, 3)],
        "what it did is there to be looked at"
    );
    assert_eq!(store.check(&mut |_| ()).unwrap().problems, [""; 0]);
}

/// I-3.
#[test]
fn a_trajectory_is_consumed_by_exactly_one_step() {
    let (_dir, store) = fresh();
    store_finished(&store, id(1, 0));
    store_finished(&store, id(2, 0));
    store
        .record(vec![committed(1, vec![id(1, 0)])], state(b"one"))
        .wait()
        .unwrap();
    assert_eq!(
        store.finished_unconsumed(Step(0)).unwrap(),
        [(id(2, 0), finish(1))]
    );
    assert_eq!(
        store.trajectory(id(1, 0)).unwrap().unwrap().consumed_by,
        Some(Step(1))
    );
    // The same step may be recorded again after a restart.
    store
        .record(vec![committed(1, vec![id(1, 0)])], state(b"again"))
        .wait()
        .unwrap();
    let twice = store.record(vec![issued(9), committed(2, vec![id(1, 0)])], state(b"two"));
    assert_eq!(
        twice.wait().unwrap_err().to_string(),
        "step 2 cannot consume trajectory 1.0.0: step 1 did"
    );
    // A refused record leaves nothing, neither state nor journal.
    assert_eq!(state_of(&store).unwrap(), b"again");
    assert_eq!(store.journal_since(0, 99).unwrap().len(), 2);
    assert_eq!(store.steps().unwrap().len(), 1);
    assert!(store.steps().unwrap()[0].metrics.loss.is_nan());
}

#[test]
fn what_was_consumed_after_the_oldest_kept_checkpoint_stays_to_be_trained_on_again() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        keep_steps: 1,
        keep_checkpoints: 2,
    };
    let (store, _) = Store::open_with(dir.path(), options, |c| c).unwrap();
    let checkpoint = |step| {
        let entry = StoredCheckpoint {
            step: Step(step),
            folder: format!("step-{step}"),
            bytes: 1,
            at: Time(1),
        };
        store.put_checkpoint(entry).wait().unwrap();
    };
    let commit = |step| {
        for member in [1, 0] {
            store
                .append_turn(id(step, member), vec![1], turn(0, 3))
                .wait()
                .unwrap();
            store.finish(id(step, member), finish(1)).wait().unwrap();
        }
        let ids = vec![id(step, 0), id(step, 1)];
        store
            .record(vec![committed(step, ids)], Remembered::default())
            .wait()
            .unwrap();
    };
    let replayable = || -> Vec<u64> {
        let there = |step: &u64| !store.consumed_by(Step(*step)).unwrap().is_empty();
        (1..=8).filter(there).collect()
    };
    (1..=2).for_each(commit);
    assert_eq!(
        replayable(),
        [1, 2],
        "without a checkpoint the number counts"
    );
    checkpoint(2);
    (3..=5).for_each(commit);
    assert_eq!(replayable(), [3, 4, 5]);
    checkpoint(4);
    checkpoint(5);
    (6..=8).for_each(commit);
    assert_eq!(
        replayable(),
        [5, 6, 7, 8],
        "after the older of the last two"
    );
    assert_eq!(store.consumed_by(Step(7)).unwrap(), [id(7, 0), id(7, 1)]);
    assert_eq!(store.step(Step(7)).unwrap().unwrap().step, Step(7));
    assert_eq!(store.step(Step(9)).unwrap(), None);
}

#[test]
fn where_checkpoints_are_elsewhere_those_say_which_trajectories_stay() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        keep_steps: 1,
        keep_checkpoints: 1,
    };
    let (store, _) = Store::open_with(dir.path(), options, |c| c).unwrap();
    let commit = |step| {
        store
            .append_turn(id(step, 0), vec![1], turn(0, 3))
            .wait()
            .unwrap();
        store.finish(id(step, 0), finish(1)).wait().unwrap();
        let record = committed(step, vec![id(step, 0)]);
        store
            .record(vec![record], Remembered::default())
            .wait()
            .unwrap();
    };
    let replayable = || -> Vec<u64> {
        let there = |step: &u64| !store.consumed_by(Step(*step)).unwrap().is_empty();
        (1..=8).filter(there).collect()
    };
    // One that was brought back from there long ago says nothing.
    let fetched = StoredCheckpoint {
        step: Step(1),
        folder: "step-1".to_owned(),
        bytes: 1,
        at: Time(1),
    };
    store.put_checkpoint(fetched).wait().unwrap();
    store.set_way_back(WayBack::Unknown);
    (1..=4).for_each(commit);
    assert_eq!(replayable(), [1, 2, 3, 4], "nobody has looked there");
    store.set_way_back(WayBack::Elsewhere(Some(Step(2))));
    (5..=6).for_each(commit);
    assert_eq!(replayable(), [3, 4, 5, 6], "after that one");
    store.set_way_back(WayBack::Elsewhere(None));
    commit(7);
    assert_eq!(replayable(), [6, 7], "without one the number counts");
}

#[test]
fn trajectories_of_long_past_steps_are_removed_with_every_part() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        keep_steps: 2,
        ..Options::default()
    };
    let (store, _) = Store::open_with(dir.path(), options, |c| c).unwrap();
    for step in 1..=4 {
        store
            .append_turn(id(step, 0), vec![1], turn(0, 20_000))
            .wait()
            .unwrap();
        store
            .append_turn(id(step, 1), vec![1], turn(0, 3))
            .wait()
            .unwrap();
        store.finish(id(step, 0), finish(1)).wait().unwrap();
        store
            .record(
                vec![committed(step, vec![id(step, 0)])],
                Remembered::default(),
            )
            .wait()
            .unwrap();
    }
    for (step, stays) in [(1, false), (2, true), (3, true), (4, true)] {
        assert_eq!(
            store.trajectory(id(step, 0)).unwrap().is_some(),
            stays,
            "step {step}"
        );
        assert_eq!(
            store.trajectory(id(step, 1)).unwrap().is_some(),
            stays,
            "step {step}"
        );
    }
    let left = store.inner.slot.read().unwrap().as_ref().unwrap().len();
    store
        .record(vec![committed(100, vec![])], Remembered::default())
        .wait()
        .unwrap();
    let after = store.inner.slot.read().unwrap().as_ref().unwrap().len();
    // What stays: version, group, 5 journal entries, 5 steps.
    assert!(left > 12 && after == 12, "{left} entries, then {after}");
}

#[test]
fn a_shorter_value_of_the_state_leaves_no_part_of_the_longer_one() {
    let (dir, store) = fresh();
    store
        .record(vec![issued(1)], state(&vec![5; 200_000]))
        .wait()
        .unwrap();
    assert_eq!(state_of(&store).unwrap(), vec![5; 200_000]);
    store
        .record(vec![issued(2)], state(&vec![6; 20_000]))
        .wait()
        .unwrap();
    drop(store);
    let (store, _) = Store::open(dir.path()).unwrap();
    assert_eq!(state_of(&store).unwrap(), vec![6; 20_000]);
    // Version, group, two journal entries, the state's head and its 2 parts.
    assert_eq!(store.inner.slot.read().unwrap().as_ref().unwrap().len(), 7);
    let journal = store.journal_since(2, 10).unwrap();
    assert_eq!(journal, [(2, issued(2))]);
}

#[test]
fn what_is_remembered_changes_with_its_record_entry_by_entry_and_the_rest_stays() {
    let (dir, store) = fresh();
    let other = Key::Entry(EntryKey::Batch(1));
    let long = vec![1; 40_000];
    let mut first = state(b"one");
    first.puts.push((other.clone(), long.clone()));
    first.puts.push((Key::Written, vec![2]));
    store.record(vec![issued(1)], first).wait().unwrap();
    store.record(vec![issued(2)], state(b"two")).wait().unwrap();
    let all = |store: &Store| store.remembered().unwrap();
    let expected = [
        (other.clone(), long),
        (Key::Written, vec![2]),
        (STATE, b"two".to_vec()),
    ];
    assert_eq!(all(&store), expected);
    // One that was never there may be removed; of a refused record nothing is.
    let gone = Remembered {
        removed: vec![other, Key::Entry(EntryKey::Batch(2))],
        ..Remembered::default()
    };
    let twice = vec![committed(1, vec![id(1, 0)]), committed(2, vec![id(1, 0)])];
    store.record(twice, gone.clone()).wait().unwrap_err();
    assert_eq!(all(&store).len(), 3);
    store.record(vec![issued(3)], gone).wait().unwrap();
    drop(store);
    let (store, _) = Store::open(dir.path()).unwrap();
    assert_eq!(all(&store), expected[1..]);
    // Version, group, three journal entries and what is remembered: no part is left of the long one.
    assert_eq!(store.inner.slot.read().unwrap().as_ref().unwrap().len(), 7);
    let whole = Remembered {
        whole: true,
        ..state(b"three")
    };
    store.record(vec![issued(4)], whole).wait().unwrap();
    assert_eq!(all(&store), [(STATE, b"three".to_vec())]);
}

#[test]
fn events_are_numbered_from_1_and_go_on_after_reopening() {
    let (dir, store) = fresh();
    let event = |text: &str| Event {
        at: now(),
        severity: Severity::Info,
        kind: "step".to_owned(),
        id: None,
        text: text.to_owned(),
    };
    let (first, durable) = store.append_event(event("a"));
    durable.wait().unwrap();
    let (second, _dropped) = store.append_event(event("b"));
    drop(store);
    let (store, _) = Store::open(dir.path()).unwrap();
    let (third, durable) = store.append_event(event("c"));
    durable.wait().unwrap();
    assert_eq!((first, second, third), (1, 2, 3));
    let texts = |since, limit| -> Vec<(u64, String)> {
        let events = store.events_since(since, limit).unwrap();
        events.into_iter().map(|(seq, e)| (seq, e.text)).collect()
    };
    assert_eq!(texts(2, 10), [(2, "b".to_owned()), (3, "c".to_owned())]);
    assert_eq!(texts(0, 1), [(1, "a".to_owned())]);
}

#[test]
fn living_processes_are_listed_until_removed() {
    let (_dir, store) = fresh();
    let instance = |n: u64| StoredInstance {
        id: InstanceId {
            role: Role::Trainer,
            index: 1,
        },
        incarnation: Incarnation(n),
        generation: Generation(2),
        pid: 100,
        start_time: 5,
    };
    store.put_instance(instance(3)).wait().unwrap();
    store.put_instance(instance(4)).wait().unwrap();
    store.remove_instance(Incarnation(3)).wait().unwrap();
    assert_eq!(store.instances().unwrap(), [instance(4)]);
}

#[test]
fn concurrent_writers_share_syncs_and_all_get_their_answers() {
    let (_dir, store) = fresh();
    std::thread::scope(|scope| {
        for member in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for index in 0..40 {
                    let done = store
                        .append_turn(id(1, member), vec![1], turn(index, 50))
                        .wait();
                    assert_eq!(done.unwrap(), Appended::Stored);
                    let seen = store.trajectory(id(1, member)).unwrap().unwrap();
                    assert_eq!(seen.turns.len(), index as usize + 1);
                }
            });
        }
    });
}

#[tokio::test]
async fn writes_that_nobody_awaits_are_done_all_the_same_and_in_order() {
    let (_dir, store) = fresh();
    for index in 0..100 {
        drop(store.append_turn(id(1, 0), vec![1], turn(index, 5)));
    }
    store.sync().await.unwrap();
    assert_eq!(
        store.trajectory(id(1, 0)).unwrap().unwrap().turns.len(),
        100
    );
}
