//! Random writes against a simple model, with reopening in between.
use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Op {
    Append {
        member: u32,
        index: u32,
        tokens: usize,
    },
    Spans {
        member: u32,
        index: u32,
        from: usize,
        to: usize,
    },
    Finish {
        member: u32,
        turns: u32,
    },
    Commit {
        step: u64,
        members: Vec<u32>,
    },
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let member = || 0..3_u32;
    prop_oneof![
        8 => (member(), 0..4_u32, prop_oneof![Just(2_usize), Just(5), Just(6000)])
            .prop_map(|(member, index, tokens)| Op::Append { member, index, tokens }),
        6 => (member(), 0..4_u32, 0..5_usize, 1..4_usize).prop_map(|(member, index, from, more)| {
            Op::Spans { member, index, from, to: from + more }
        }),
        3 => (member(), 0..4_u32).prop_map(|(member, turns)| Op::Finish { member, turns }),
        2 => (1..3_u64, prop::collection::vec(member(), 0..3))
            .prop_map(|(step, members)| Op::Commit { step, members }),
        1 => Just(Op::Reopen),
    ]
}

/// What must be stored of one trajectory.
#[derive(Clone, Default)]
struct Model {
    turns: Vec<Turn>,
    /// Tokens stored of the turn after those.
    running: usize,
    finished: Option<Finish>,
    consumed_by: Option<Step>,
}

type Models = BTreeMap<u32, Model>;

fn append(store: &Store, models: &mut Models, member: u32, turn: Turn) {
    let model = models.entry(member).or_default();
    let done = store
        .append_turn(id(1, member), vec![4], turn.clone())
        .wait();
    match model.turns.get(turn.index as usize) {
        Some(stored) if *stored == turn => assert_eq!(done.unwrap(), Appended::Repeated),
        Some(_) => assert_eq!(done.unwrap(), Appended::Already),
        None if model.finished.is_some() || turn.index as usize > model.turns.len() => {
            assert!(done.unwrap_err().is_refusal());
        }
        None if turn.spans[0].ids.len() < model.running => {
            assert_eq!(done.unwrap(), Appended::Already);
        }
        None => {
            assert_eq!(done.unwrap(), Appended::Stored);
            (model.running, _) = (0, model.turns.push(turn));
        }
    }
}

/// Tokens are the same in every turn of an index, however many it has.
fn spans(store: &Store, models: &mut Models, member: u32, index: u32, (from, to): (usize, usize)) {
    let model = models.entry(member).or_default();
    let mut all = turn(index, to).spans.remove(0);
    all.ids.drain(..from);
    all.logprobs.drain(..from);
    let tokens = Tokens {
        turn: index,
        offset: from as u32,
        spans: vec![all],
    };
    let done = store.append_spans(id(1, member), vec![4], tokens).wait();
    let (there, under_way) = match model.turns.get(index as usize) {
        Some(whole) => (whole.spans[0].ids.len(), false),
        None => (model.running, true),
    };
    let next = index as usize == model.turns.len() && model.finished.is_none();
    if under_way && (!next || from > there) {
        assert!(done.unwrap_err().is_refusal());
    } else if under_way && from == there {
        assert_eq!(done.unwrap(), Appended::Stored);
        model.running = to;
    } else {
        let known = to <= there;
        let expected = [Appended::Already, Appended::Repeated][usize::from(known)];
        assert_eq!(done.unwrap(), expected);
    }
}

fn end(store: &Store, models: &mut Models, member: u32, turns: u32) {
    let model = models.entry(member).or_default();
    let done = store.finish(id(1, member), finish(turns)).wait();
    match &model.finished {
        Some(stored) if *stored == finish(turns) => {
            assert_eq!(done.unwrap(), Appended::Repeated);
        }
        Some(_) => assert_eq!(done.unwrap(), Appended::Already),
        None if turns as usize == model.turns.len() && model.running == 0 => {
            assert_eq!(done.unwrap(), Appended::Stored);
            model.finished = Some(finish(turns));
        }
        None => assert!(done.unwrap_err().is_refusal()),
    }
}

fn commit(store: &Store, models: &mut Models, step: u64, members: &[u32]) {
    let trajectories = members.iter().map(|m| id(1, *m)).collect();
    let done = store
        .record(vec![committed(step, trajectories)], Remembered::default())
        .wait();
    let other = |m: &u32| {
        let by = models.get(m).and_then(|model| model.consumed_by);
        by.is_some_and(|by| by != Step(step))
    };
    if members.iter().any(other) {
        assert!(done.unwrap_err().is_refusal());
        return;
    }
    done.unwrap();
    for member in members {
        models.entry(*member).or_default().consumed_by = Some(Step(step));
    }
}

fn check(store: &Store, models: &Models) {
    let mut unconsumed = Vec::new();
    for (member, model) in models {
        let stored = store.trajectory(id(1, *member)).unwrap();
        if model.turns.is_empty() && model.finished.is_none() && model.running == 0 {
            assert_eq!(stored, None);
            continue;
        }
        let stored = stored.unwrap();
        assert_eq!(stored.turns, model.turns);
        let running: usize = stored.running.iter().map(|span| span.ids.len()).sum();
        assert_eq!(running, model.running);
        assert_eq!(
            (&stored.finished, stored.consumed_by),
            (&model.finished, model.consumed_by)
        );
        if let (Some(finish), None) = (&model.finished, model.consumed_by) {
            unconsumed.push((id(1, *member), finish.clone()));
        }
    }
    assert_eq!(store.finished_unconsumed(Step(0)).unwrap(), unconsumed);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn the_store_does_what_the_model_does(ops in prop::collection::vec(op(), 1..40)) {
        let (dir, mut store) = fresh();
        let mut models = Models::new();
        for op in ops {
            match op {
                Op::Append { member, index, tokens } => {
                    append(&store, &mut models, member, turn(index, tokens));
                }
                Op::Spans { member, index, from, to } => {
                    spans(&store, &mut models, member, index, (from, to));
                }
                Op::Finish { member, turns } => end(&store, &mut models, member, turns),
                Op::Commit { step, members } => commit(&store, &mut models, step, &members),
                Op::Reopen => {
                    drop(store);
                    let (reopened, note) = Store::open(dir.path()).unwrap();
                    prop_assert_eq!(note, None);
                    store = reopened;
                }
            }
            check(&store, &models);
        }
    }
}
