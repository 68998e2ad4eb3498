//! Tokens of a turn under way.
use super::keys::Key;
use super::*;

/// Tokens `from..to` of a turn as [`turn`] makes it, two versions from the fifth token on.
fn tokens(index: u32, from: u32, to: u32) -> Tokens {
    Tokens {
        turn: index,
        offset: from,
        spans: cut(index, from, to),
    }
}

fn cut(index: u32, from: u32, to: u32) -> Vec<Span> {
    let span = |from: u32, to: u32, version| Span {
        ids: (from..to).map(|i| i * 31 + index).collect(),
        logprobs: (from..to).map(|i| -0.5 / (i + 1) as f32).collect(),
        version,
    };
    let (old, new) = (span(from, to.min(5), 3), span(from.max(5), to, 4));
    let spans = [old, new].into_iter();
    spans.filter(|span| !span.ids.is_empty()).collect()
}

fn whole(index: u32, to: u32) -> Turn {
    Turn {
        spans: cut(index, 0, to),
        ..turn(index, 0)
    }
}

fn append(store: &Store, which: TrajectoryId, t: Tokens) -> Result<Appended, StoreError> {
    store.append_spans(which, vec![1, 2], t).wait()
}

fn running(store: &Store, which: TrajectoryId) -> Vec<Span> {
    store.trajectory(which).unwrap().unwrap().running
}

/// Keys of spans that are in the database.
fn span_keys(store: &Store) -> usize {
    let slot = store.inner.slot.read().unwrap();
    let keys = slot.as_ref().unwrap().iter().keys();
    keys.filter(|key| matches!(Key::decode(key.as_ref().unwrap()), Some(Key::Span(..))))
        .count()
}

#[test]
fn what_is_stored_of_a_turn_under_way_reads_back_after_a_restart_with_its_prompt() {
    let (dir, store) = fresh();
    let which = id(1, 0);
    for (from, to) in [(0, 2), (2, 3), (3, 7), (7, 9000)] {
        let stored = append(&store, which, tokens(0, from, to)).unwrap();
        assert_eq!(stored, Appended::Stored);
    }
    drop(store);
    let (store, _) = Store::open(dir.path()).unwrap();
    let expected = StoredTrajectory {
        prompt_ids: vec![1, 2],
        running: cut(0, 0, 9000),
        ..StoredTrajectory::default()
    };
    assert_eq!(store.trajectory(which).unwrap(), Some(expected));
    assert_eq!(store.check(&mut |_| ()).unwrap().problems, [""; 0]);
}

#[test]
fn tokens_may_come_twice_and_other_tokens_in_their_place_change_nothing() {
    let (_dir, store) = fresh();
    let which = id(1, 0);
    append(&store, which, tokens(0, 0, 4)).unwrap();
    append(&store, which, tokens(0, 4, 8)).unwrap();
    for (from, to) in [(0, 4), (4, 8), (2, 6), (0, 8)] {
        let again = append(&store, which, tokens(0, from, to)).unwrap();
        assert_eq!(again, Appended::Repeated, "{from}..{to}");
    }
    let mut other = tokens(0, 4, 8);
    other.spans[1].logprobs[0] = -0.25;
    assert_eq!(append(&store, which, other).unwrap(), Appended::Already);
    let mut older = tokens(0, 4, 8);
    older.spans[1].version = 3;
    assert_eq!(append(&store, which, older).unwrap(), Appended::Already);
    // More than is stored, from before its end: nobody who goes on from what is stored says so.
    let wide = append(&store, which, tokens(0, 6, 10)).unwrap();
    assert_eq!(wide, Appended::Already);
    assert_eq!(running(&store, which), cut(0, 0, 8));
}

#[test]
fn tokens_before_those_they_follow_are_refused() {
    let (_dir, store) = fresh();
    let which = id(1, 0);
    append(&store, which, tokens(0, 0, 4)).unwrap();
    let gap = append(&store, which, tokens(0, 5, 6)).unwrap_err();
    assert!(gap.is_refusal());
    assert_eq!(
        gap.to_string(),
        "trajectory 1.0.0, turn 0: tokens from 5 on cannot be stored after 4"
    );
    let early = append(&store, which, tokens(1, 0, 2)).unwrap_err();
    assert!(matches!(
        early,
        StoreError::TurnGap {
            expected: 0,
            got: 1,
            ..
        }
    ));
    assert_eq!(running(&store, which), cut(0, 0, 4));
}

#[test]
fn a_turn_takes_the_place_of_its_tokens_and_late_ones_say_nothing_new() {
    let (_dir, store) = fresh();
    let which = id(1, 0);
    append(&store, which, tokens(0, 0, 4)).unwrap();
    append(&store, which, tokens(0, 4, 6)).unwrap();
    let stored = store.append_turn(which, vec![1, 2], whole(0, 9)).wait();
    assert_eq!(stored.unwrap(), Appended::Stored);
    let late = append(&store, which, tokens(0, 6, 8)).unwrap();
    assert_eq!(late, Appended::Repeated);
    let beyond = append(&store, which, tokens(0, 8, 12)).unwrap();
    assert_eq!(beyond, Appended::Already);
    let read = store.trajectory(which).unwrap().unwrap();
    assert_eq!((read.turns, read.running), (vec![whole(0, 9)], vec![]));
    assert_eq!((read.prompt_ids, span_keys(&store)), (vec![1, 2], 0));
}

#[test]
fn a_turn_that_begins_otherwise_than_what_is_stored_of_it_is_dropped() {
    let (_dir, store) = fresh();
    let which = id(1, 0);
    append(&store, which, tokens(0, 0, 4)).unwrap();
    let mut other = whole(0, 9);
    other.spans[0].ids[3] += 1;
    let short = whole(0, 3);
    for turn in [other, short] {
        let dropped = store.append_turn(which, vec![], turn).wait().unwrap();
        assert_eq!(dropped, Appended::Already);
    }
    assert_eq!(running(&store, which), cut(0, 0, 4));
}

#[test]
fn a_trajectory_does_not_end_in_the_middle_of_a_turn_nor_goes_on_after_its_end() {
    let (_dir, store) = fresh();
    let which = id(1, 0);
    store_turn(&store, which, 0);
    append(&store, which, tokens(1, 0, 4)).unwrap();
    let open = store.finish(which, finish(1)).wait().unwrap_err();
    assert!(open.is_refusal());
    assert_eq!(
        open.to_string(),
        "trajectory 1.0.0 cannot be finished: turn 1 is under way"
    );
    let whole = store.append_turn(which, vec![], whole(1, 5)).wait();
    assert_eq!(whole.unwrap(), Appended::Stored);
    store.finish(which, finish(2)).wait().unwrap();
    let after = append(&store, which, tokens(2, 0, 1)).unwrap_err();
    assert!(matches!(after, StoreError::AfterFinish { index: 2, .. }));
}

fn store_turn(store: &Store, which: TrajectoryId, index: u32) {
    let stored = store.append_turn(which, vec![1, 2], whole(index, 3)).wait();
    assert_eq!(stored.unwrap(), Appended::Stored);
}

#[test]
fn writes_of_one_group_see_each_other() {
    let (_dir, store) = fresh();
    let which = id(1, 0);
    // The committer is busy with the first group while the rest gathers.
    let first = store.record(vec![issued(1)], Remembered::default());
    let all = [
        store.append_spans(which, vec![1, 2], tokens(0, 0, 2)),
        store.append_spans(which, vec![], tokens(0, 2, 6)),
        store.append_spans(which, vec![], tokens(0, 2, 6)),
        store.append_turn(which, vec![], whole(0, 7)),
        store.append_spans(which, vec![], tokens(0, 6, 7)),
        store.append_spans(which, vec![], tokens(1, 0, 2)),
        store.append_spans(which, vec![], tokens(1, 3, 4)),
    ];
    first.wait().unwrap();
    let [a, b, c, d, e, f, g] = all.map(Durable::wait);
    let (stored, repeated) = (Appended::Stored, Appended::Repeated);
    let done = [a, b, c, d, e, f].map(Result::unwrap);
    assert_eq!(done, [stored, stored, repeated, stored, repeated, stored]);
    assert!(matches!(g, Err(StoreError::SpanGap { expected: 2, .. })));
    let read = store.trajectory(which).unwrap().unwrap();
    assert_eq!(
        (read.turns, read.running),
        (vec![whole(0, 7)], cut(1, 0, 2))
    );
    assert_eq!(span_keys(&store), 1);
}

#[test]
fn what_is_thrown_away_or_pruned_leaves_no_tokens_behind() {
    let (dir, store) = fresh();
    drop(store);
    let options = Options {
        keep_steps: 1,
        ..Options::default()
    };
    let (store, _) = Store::open_with(dir.path(), options, |commit| commit).unwrap();
    append(&store, id(1, 0), tokens(0, 0, 9000)).unwrap();
    append(&store, id(2, 0), tokens(0, 0, 4)).unwrap();
    let lost = Record::Discarded {
        trajectories: vec![id(2, 0)],
    };
    store
        .record(vec![lost], Remembered::default())
        .wait()
        .unwrap();
    assert_eq!(store.trajectory(id(2, 0)).unwrap(), None);
    // From the start again, other tokens than before.
    let other = Tokens {
        spans: cut(7, 0, 2),
        ..tokens(0, 0, 2)
    };
    assert_eq!(append(&store, id(2, 0), other).unwrap(), Appended::Stored);
    store
        .record(vec![committed(3, vec![])], Remembered::default())
        .wait()
        .unwrap();
    assert_eq!(store.trajectory(id(1, 0)).unwrap(), None);
    assert_eq!(span_keys(&store), 1);
}
