//! A program with a loop of its own.
use super::*;
use robust_proto::v1::{OwnStep, OwnStepReply, RestoreReply};

/// One whose program has a loop of its own.
fn own_rank(level: Level, keeps_state: bool) -> Rank<Fake> {
    let attached = Attached {
        level,
        keeps_state,
        ..attached(false)
    };
    let own = OwnLoop {
        commits: level >= Level::Weights,
        publishes: level >= Level::Weights,
        keeps_state,
    };
    Rank::new(attached, Some(own), Fake::default())
}

fn own_step(step: u64) -> Call {
    call(&format!("own_step/{step}"), Body::OwnStep(OwnStep { step }))
}

/// A rank at level weights, in its second life, at step 6.
fn publishes_at_six() -> Rank<Fake> {
    let mut rank = own_rank(Level::Weights, false);
    ask(&mut rank, attach());
    rank.on_call(EPOCH(), restore(6, 2));
    assert!(matches!(
        replies(&mut rank)[..],
        [Ok(Reply::Restore(RestoreReply { step: 6 }))]
    ));
    rank
}

fn next_version() -> Ask {
    Ask::Publish {
        version: None,
        tensors: Vec::new(),
    }
}

#[test]
fn a_program_that_commits_in_its_own_loop_asks_for_no_batch_and_tells_its_figures() {
    let mut rank = own_rank(Level::State, true);
    ask(&mut rank, attach());
    rank.on_call(EPOCH(), restore(6, 2));
    ask(&mut rank, Ask::Restore);
    let (step, error) = (6, None);
    ask(&mut rank, Ask::Restored { step, error });
    rank.said();
    let refused = refusal(ask(&mut rank, Ask::Batch));
    assert!(
        refused.contains("level \"data\"") && refused.contains("trainer.command.level"),
        "{refused}"
    );
    assert_eq!(ask(&mut rank, figures(7, "0.5")), None, "nobody asked yet");
    rank.on_call(EPOCH(), own_step(7));
    let told = OwnStepReply {
        figures: Some(robust_proto::v1::UpdateReply {
            loss: 0.5,
            ..Default::default()
        }),
        ..OwnStepReply::default()
    };
    assert_eq!(replies(&mut rank), [Ok(Reply::OwnStep(told))]);
    rank.on_call(EPOCH(), snapshot(7));
    let place = place("slot");
    assert_eq!(answers(&mut rank), [Answer::Write { of: 7, place }]);
    rank.on_ask(Ask::Written { step: 7 });
    rank.said();
    rank.on_call(EPOCH(), publish(7));
    assert_eq!(answers(&mut rank), [Answer::Done]);
    let unpublished = refusal(ask(&mut rank, figures(8, "0.5")));
    assert!(
        unpublished.contains("publish() was not called for step 7"),
        "{unpublished}"
    );
}

#[test]
fn a_loss_that_is_none_fails_a_step_of_an_own_loop_too() {
    let mut rank = own_rank(Level::State, false);
    ask(&mut rank, attach());
    rank.on_call(EPOCH(), restore(0, 0));
    rank.on_call(EPOCH(), own_step(1));
    rank.said();
    rank.on_ask(figures(1, "nan"));
    let said = rank.said();
    let [Said::Reply(_, reply)] = &said[..] else {
        unreachable!("{said:?}");
    };
    assert!(reply.numeric, "{}", reply.error);
}

#[test]
fn the_first_version_is_that_of_the_step_it_is_at_and_each_further_one_is_a_step() {
    let mut rank = own_rank(Level::Weights, false);
    ask(&mut rank, attach());
    assert_eq!(
        ask(&mut rank, next_version()),
        None,
        "its step is not known"
    );
    rank.on_call(EPOCH(), restore(0, 0));
    rank.on_call(EPOCH(), publish(0));
    assert!(matches!(
        answers(&mut rank)[..],
        [Answer::Write { of: 0, .. }]
    ));
    ask(&mut rank, published(0));
    rank.on_served(0, Ok(ServedVersion::default()));
    rank.said();
    rank.on_ask(next_version());
    rank.on_call(EPOCH(), own_step(1));
    assert!(matches!(replies(&mut rank)[..], [Ok(Reply::OwnStep(ref r))] if !r.over));
    rank.on_call(EPOCH(), snapshot(1));
    assert!(matches!(&replies(&mut rank)[..], [Ok(Reply::Snapshot(s))] if s.step == 1));
    rank.on_call(EPOCH(), publish(1));
    assert!(matches!(
        answers(&mut rank)[..],
        [Answer::Write { of: 1, .. }]
    ));
    assert_eq!(
        rank.hands.done,
        [
            "at Some(0)",
            "begin version 0",
            "end version 0",
            "begin state 1",
            "end state 1",
            "at Some(1)",
            "begin version 1"
        ]
    );
}

#[test]
fn a_program_that_comes_back_with_its_own_state_publishes_no_version_twice() {
    let mut rank = publishes_at_six();
    let state = Answer::State {
        step: 6,
        places: Vec::new(),
    };
    assert_eq!(ask(&mut rank, Ask::Restore), Some(state));
    rank.on_ask(next_version());
    // Version 6 is another life's, and is not asked for.
    rank.on_call(EPOCH(), own_step(7));
    rank.on_call(EPOCH(), snapshot(7));
    rank.on_call(EPOCH(), own_step(8));
    assert!(matches!(
        answers(&mut rank)[..],
        [Answer::Write { of: 7, .. }]
    ));
}

#[test]
fn what_it_publishes_right_after_it_came_back_is_nobodys_version() {
    let mut rank = own_rank(Level::State, false);
    ask(&mut rank, attach());
    rank.on_call(EPOCH(), restore(6, 2));
    assert_eq!(ask(&mut rank, version(6)), None, "it may be wanted yet");
    rank.on_call(EPOCH(), own_step(7));
    assert_eq!(answers(&mut rank), [Answer::Done]);
    assert_eq!(rank.hands.done, ["at Some(6)"]);
}

#[test]
fn a_program_that_ends_between_two_steps_is_over_and_what_it_published_is_served_on() {
    let mut rank = publishes_at_six();
    assert!(rank.may_end());
    rank.on_ended();
    assert_eq!(replies(&mut rank), []);
    rank.on_call(EPOCH(), own_step(7));
    let over = OwnStepReply {
        over: true,
        ..OwnStepReply::default()
    };
    assert_eq!(replies(&mut rank), [Ok(Reply::OwnStep(over))]);
    // The daemon was restarted, and does not know of it.
    rank.on_call(EPOCH(), own_step(7));
    assert_eq!(replies(&mut rank), [Ok(Reply::OwnStep(over))]);
    rank.on_call(EPOCH(), publish(6));
    let failed = replies(&mut rank).pop().unwrap().unwrap_err();
    assert!(failed.contains("without publishing"), "{failed}");
}

#[test]
fn a_program_may_not_end_in_the_middle_of_a_step_nor_one_that_trains_on_batches() {
    let mut rank = own_rank(Level::State, false);
    ask(&mut rank, attach());
    assert!(!rank.may_end(), "it has no state yet");
    rank.on_call(EPOCH(), restore(0, 0));
    rank.on_call(EPOCH(), own_step(1));
    rank.on_ask(figures(1, "0.5"));
    assert!(!rank.may_end());
    assert!(!at_six().may_end());
}

#[test]
fn a_program_that_says_nothing_is_restored_when_it_is_up() {
    let mut rank = own_rank(Level::None, false);
    rank.on_call(EPOCH(), restore(0, 0));
    assert!(!rank.is_up() && replies(&mut rank).is_empty());
    assert!(!rank.may_end(), "it has yet to come up");
    rank.on_up();
    assert!(rank.is_up());
    assert_eq!(replies(&mut rank).len(), 1);
    rank.on_call(EPOCH(), own_step(1));
    assert_eq!(replies(&mut rank), []);
    rank.on_ended();
    assert!(matches!(replies(&mut rank)[..], [Ok(Reply::OwnStep(ref r))] if r.over));
}

#[test]
fn a_program_that_only_attaches_is_restored_though_the_call_came_before_it() {
    let mut rank = own_rank(Level::Phases, false);
    rank.on_call(EPOCH(), restore(0, 0));
    assert_eq!(replies(&mut rank), []);
    rank.on_ask(attach());
    assert_eq!(replies(&mut rank).len(), 1);
    assert!(rank.may_end());
}

#[test]
fn what_a_level_does_not_have_is_refused_with_the_key_to_change() {
    let mut rank = own_rank(Level::Phases, false);
    ask(&mut rank, attach());
    rank.on_call(EPOCH(), restore(0, 0));
    rank.said();
    for (question, level) in [(figures(1, "0"), "state"), (next_version(), "weights")] {
        let refused = refusal(ask(&mut rank, question));
        assert!(refused.contains(&format!("level \"{level}\"")), "{refused}");
    }
}
