//! A program that asks for batches.
use super::*;
use robust_proto::v1::RestoreReply;

#[test]
fn a_program_waits_for_what_the_daemon_has_not_asked_yet() {
    let mut rank = rank();
    assert!(matches!(
        ask(&mut rank, attach()),
        Some(Answer::Attached(_))
    ));
    assert_eq!(ask(&mut rank, Ask::Restore), None);
    rank.on_call(EPOCH(), restore(0, 0));
    let state = Answer::State {
        step: 0,
        places: Vec::new(),
    };
    assert_eq!(answers(&mut rank), [state]);
    let (step, error) = (0, None);
    rank.on_ask(Ask::Restored { step, error });
    assert!(matches!(
        replies(&mut rank)[..],
        [Ok(Reply::Restore(RestoreReply { step: 0 }))]
    ));
}

#[test]
fn a_step_goes_from_its_batch_to_its_version_and_the_program_hears_when_it_is_on_record() {
    let mut rank = at_seven();
    rank.on_ask(figures(7, "0.5"));
    assert!(matches!(replies(&mut rank)[..], [Ok(Reply::Update(u))] if u.loss == 0.5));
    rank.on_call(EPOCH(), snapshot(7));
    assert!(matches!(answers(&mut rank)[..], [Answer::Write { .. }]));
    rank.on_ask(Ask::Written { step: 7 });
    assert!(matches!(&replies(&mut rank)[..], [Ok(Reply::Snapshot(s))] if s.step == 7));
    assert_eq!(answers(&mut rank), [], "nobody said that it is on record");
    rank.on_call(EPOCH(), publish(7));
    assert_eq!(answers(&mut rank), [Answer::Done]);
    assert!(matches!(
        ask(&mut rank, version(7)),
        Some(Answer::Write { .. })
    ));
    assert_eq!(ask(&mut rank, published(7)), Some(Answer::Done));
    assert_eq!(replies(&mut rank).len(), 0, "it is not served yet");
    rank.on_served(7, Ok(ServedVersion::default()));
    assert!(matches!(replies(&mut rank)[..], [Ok(Reply::Publish(_))]));
}

#[test]
fn a_step_that_is_trained_again_is_on_record_when_the_next_is_asked_for() {
    let mut rank = at_seven();
    rank.on_ask(figures(7, "0.5"));
    rank.on_call(EPOCH(), snapshot(7));
    rank.on_ask(Ask::Written { step: 7 });
    rank.said();
    rank.on_call(EPOCH(), train(8));
    assert_eq!(answers(&mut rank), [Answer::Done]);
}

#[test]
fn numbers_that_are_none_fail_the_step_and_the_program_goes_no_further() {
    for (loss, on_request) in [("nan", false), ("inf", false), ("0.5", true)] {
        let mut rank = at_seven();
        rank.hands.spoils = on_request;
        rank.on_ask(figures(7, loss));
        let said = rank.said();
        let [Said::Reply(_, reply)] = &said[..] else {
            unreachable!("{said:?}");
        };
        assert!(reply.numeric, "{}", reply.error);
        rank.on_call(EPOCH(), snapshot(7));
        assert_eq!(answers(&mut rank), [], "no state of it is written");
    }
}

#[test]
fn a_call_that_comes_twice_is_answered_once_and_then_from_memory() {
    let mut rank = at_seven();
    // The daemon was restarted while the program computes.
    rank.on_call(EPOCH(), train(7));
    rank.on_ask(figures(7, "0.5"));
    assert_eq!(replies(&mut rank).len(), 1);
    rank.on_call(EPOCH(), train(7));
    assert!(matches!(replies(&mut rank)[..], [Ok(Reply::Update(_))]));
    let batches = rank.hands.done.iter().filter(|d| *d == "batch 7");
    assert_eq!(batches.count(), 1);
    let old = Call {
        generation: 3,
        ..train(8)
    };
    rank.on_call(EPOCH(), old);
    let refused = replies(&mut rank).pop().unwrap().unwrap_err();
    assert!(refused.contains("generation 3"), "{refused}");
}

#[test]
fn a_state_that_cannot_be_read_is_the_daemons_to_replace_and_the_program_waits_for_another() {
    let mut rank = rank();
    ask(&mut rank, attach());
    rank.hands.corrupt = true;
    rank.on_call(EPOCH(), restore(6, 2));
    rank.on_ask(Ask::Restore);
    assert_eq!(replies(&mut rank), [Err("shard 1 is corrupt".to_owned())]);
    rank.hands.corrupt = false;
    rank.on_call(EPOCH(), restore(3, 2));
    assert!(matches!(
        answers(&mut rank)[..],
        [Answer::State { step: 3, .. }]
    ));
    let (step, error) = (3, Some("KeyError: optim".to_owned()));
    let refused = refusal(ask(&mut rank, Ask::Restored { step, error }));
    assert_eq!(refused, "KeyError: optim");
    assert_eq!(
        ask(&mut rank, Ask::Restore),
        None,
        "it may be told of another"
    );
}

#[test]
fn a_state_of_another_number_of_ranks_is_refused_with_the_reason() {
    let mut rank = rank();
    ask(&mut rank, attach());
    rank.on_call(EPOCH(), restore(6, 3));
    rank.on_ask(Ask::Restore);
    let error = replies(&mut rank).pop().unwrap().unwrap_err();
    assert!(
        error.contains("3 ranks wrote the state of step 6, and this gang has 2"),
        "{error}"
    );
}

#[test]
fn a_state_that_any_number_of_ranks_can_take_up_is_told_whole() {
    let attached = Attached {
        reshards: true,
        ..attached(false)
    };
    let mut rank = Rank::new(attached, None, Fake::default());
    ask(&mut rank, attach());
    rank.on_call(EPOCH(), restore(6, 3));
    let places = (0..3).map(|of| place(&format!("shard {of}"))).collect();
    let state = Answer::State { step: 6, places };
    assert_eq!(ask(&mut rank, Ask::Restore), Some(state));
}

#[test]
fn what_a_program_forgets_is_said_with_what_to_call() {
    let mut rank = rank();
    ask(&mut rank, attach());
    let early = refusal(ask(&mut rank, Ask::Batch));
    assert!(early.contains("after restore()"), "{early}");
    let twice = refusal(ask(&mut rank, attach()));
    assert!(twice.contains("attached already"), "{twice}");
    let mut rank = at_seven();
    let uncommitted = refusal(ask(&mut rank, Ask::Batch));
    assert!(
        uncommitted.contains("it has the batch of step 7"),
        "{uncommitted}"
    );
    rank.on_ask(figures(7, "0.5"));
    rank.on_call(EPOCH(), snapshot(7));
    rank.on_ask(Ask::Written { step: 7 });
    rank.on_call(EPOCH(), publish(7));
    rank.said();
    let unpublished = refusal(ask(&mut rank, Ask::Batch));
    assert!(
        unpublished.contains("publish() was not called for step 7"),
        "{unpublished}"
    );
    let old = refusal(ask(
        &mut rank_of(false),
        Ask::Attach {
            protocol: 0,
            pid: 1,
            package: "old".to_owned(),
        },
    ));
    assert!(old.contains("install the python package"), "{old}");
}

#[test]
fn weights_that_engines_are_verified_by_must_come_with_their_answer() {
    let mut rank = rank_of(true);
    ask(&mut rank, attach());
    rank.on_call(EPOCH(), restore(0, 0));
    ask(&mut rank, Ask::Restore);
    let (step, error) = (0, None);
    ask(&mut rank, Ask::Restored { step, error });
    ask(&mut rank, version(0));
    let refused = refusal(ask(&mut rank, published(0)));
    assert!(refused.contains("canary="), "{refused}");
    let canary = Some(CanaryAnswer {
        ids: vec![1],
        logprobs: vec![-0.5],
        margins: vec![1.0],
    });
    let version = 0;
    let answer = ask(&mut rank, Ask::Published { version, canary });
    assert_eq!(answer, Some(Answer::Done));
}

#[test]
fn an_exception_on_request_reaches_the_program_and_the_end_of_the_job_ends_its_loop() {
    let mut rank = at_six();
    rank.hands.exception = Some("exception on request in update".to_owned());
    let raised = refusal(ask(&mut rank, Ask::Batch));
    assert_eq!(raised, "exception on request in update");
    assert_eq!(ask(&mut rank, Ask::Batch), None);
    rank.on_over();
    assert_eq!(answers(&mut rank), [Answer::Over]);
    assert_eq!(ask(&mut rank, Ask::Batch), Some(Answer::Over));
}

#[test]
fn parts_of_a_step_are_not_for_programs() {
    let mut rank = at_six();
    let body = Body::Update(robust_proto::v1::Update::default());
    rank.on_call(EPOCH(), call("update/7", body));
    assert!(replies(&mut rank).pop().unwrap().is_err());
}
