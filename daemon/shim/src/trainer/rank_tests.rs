//! What a rank answers to its program and to the daemon, in which order whatever comes first.
#![allow(clippy::unwrap_used)]
use super::*;
use robust_proto::v1::call::Body;
use robust_proto::v1::call_reply::Result as Reply;
use robust_proto::v1::{OwnStep, OwnStepReply, Publish, Restore, RestoreReply, Snapshot};

/// Remembers what was done.
#[derive(Default)]
struct Fake {
    done: Vec<String>,
    corrupt: bool,
    spoils: bool,
    exception: Option<String>,
}

impl Hands for Fake {
    fn look_at(&mut self, shards: &[SnapshotReply]) -> Result<Vec<Place>, String> {
        match self.corrupt {
            true => Err(format!("{} is corrupt", shards[0].path)),
            false => Ok(shards.iter().map(|shard| place(&shard.path)).collect()),
        }
    }
    fn is_unchanged(&mut self) -> Result<(), String> {
        Ok(())
    }
    fn lay_batch(&mut self, train: &Train) -> Result<PathBuf, String> {
        self.done.push(format!("batch {}", train.step));
        Ok(PathBuf::from("batch"))
    }
    fn begin_state(&mut self, step: u64, _: &[Tensor]) -> Result<Place, String> {
        self.done.push(format!("begin state {step}"));
        Ok(place("slot"))
    }
    fn end_state(&mut self, step: u64) -> Result<SnapshotReply, String> {
        self.done.push(format!("end state {step}"));
        Ok(SnapshotReply {
            step,
            ..SnapshotReply::default()
        })
    }
    fn begin_version(&mut self, version: u64, _: &[Tensor]) -> Result<Place, String> {
        self.done.push(format!("begin version {version}"));
        Ok(place("version"))
    }
    fn end_version(&mut self, version: u64, _: Option<CanaryAnswer>) -> Result<(), String> {
        self.done.push(format!("end version {version}"));
        Ok(())
    }
    fn exception(&mut self) -> Option<String> {
        self.exception.take()
    }
    fn spoils(&mut self) -> bool {
        std::mem::take(&mut self.spoils)
    }
    fn is_at(&mut self, step: Option<u64>) {
        self.done.push(format!("at {step:?}"));
    }
}

fn place(path: &str) -> Place {
    Place {
        path: PathBuf::from(path),
        data: 0,
        tensors: Vec::new(),
    }
}

fn rank_of(canary: bool) -> Rank<Fake> {
    let attached = attached(canary);
    Rank::new(attached, None, Fake::default())
}

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

fn attached(canary: bool) -> Attached {
    Attached {
        rank: 1,
        world_size: 2,
        local_rank: 1,
        generation: 4,
        incarnation: 9,
        job: "j".to_owned(),
        model: PathBuf::from("model"),
        page: PathBuf::from("page"),
        level: Level::Data,
        keeps_state: true,
        phases: Vec::new(),
        reshards: false,
        canary: canary.then(|| super::super::words::CanaryPrompt {
            prompt_ids: vec![1],
            tokens: 1,
        }),
    }
}

fn rank() -> Rank<Fake> {
    rank_of(false)
}

fn attach() -> Ask {
    Ask::Attach {
        protocol: PROTOCOL,
        pid: 1,
        package: "t".to_owned(),
    }
}

fn call(key: &str, body: Body) -> Call {
    Call {
        call_id: 7,
        key: key.to_owned(),
        generation: 4,
        body: Some(body),
    }
}

fn restore(step: u64, shards: usize) -> Call {
    let shard = |at| SnapshotReply {
        step,
        path: format!("shard {at}"),
        ..SnapshotReply::default()
    };
    let body = Body::Restore(Restore {
        step,
        shards: (0..shards).map(shard).collect(),
        peers: Vec::new(),
        own: false,
    });
    call(&format!("restore/{step}"), body)
}

fn train(step: u64) -> Call {
    let body = Body::Train(Train {
        step,
        samples: Vec::new(),
        batch_trainable_tokens: 5,
    });
    call(&format!("train/{step}"), body)
}

fn own_step(step: u64) -> Call {
    call(&format!("own_step/{step}"), Body::OwnStep(OwnStep { step }))
}

fn snapshot(step: u64) -> Call {
    call(
        &format!("snapshot/{step}"),
        Body::Snapshot(Snapshot { step }),
    )
}

fn publish(version: u64) -> Call {
    call(
        &format!("publish/{version}"),
        Body::Publish(Publish { version }),
    )
}

fn figures(step: u64, loss: &str) -> Ask {
    Ask::Figures {
        step,
        figures: [("loss".to_owned(), loss.to_owned())].into(),
        tensors: Vec::new(),
    }
}

fn version(version: u64) -> Ask {
    Ask::Publish {
        version: Some(version),
        tensors: Vec::new(),
    }
}

fn published(version: u64) -> Ask {
    let canary = None;
    Ask::Published { version, canary }
}

const EPOCH: fn() -> DaemonEpoch = DaemonEpoch::default;

/// What it says to the question; none: it waits.
fn ask(rank: &mut Rank<Fake>, ask: Ask) -> Option<Answer> {
    rank.on_ask(ask);
    answers(rank).pop()
}

/// Answers to the program that are due; replies to the daemon are dropped.
fn answers(rank: &mut Rank<Fake>) -> Vec<Answer> {
    let said = rank.said().into_iter();
    let answers = said.filter_map(|said| match said {
        Said::Answer(answer) => Some(answer),
        Said::Reply(..) => None,
    });
    answers.collect()
}

/// Replies to the daemon that are due, as result or error.
fn replies(rank: &mut Rank<Fake>) -> Vec<Result<Reply, String>> {
    let said = rank.said().into_iter();
    let replies = said.filter_map(|said| match said {
        Said::Reply(_, reply) => Some(match reply.error.is_empty() {
            true => Ok(reply.result.unwrap()),
            false => Err(reply.error),
        }),
        Said::Answer(_) => None,
    });
    replies.collect()
}

fn refusal(answer: Option<Answer>) -> String {
    match answer {
        Some(Answer::Error { reason }) => reason,
        other => unreachable!("{other:?}"),
    }
}

/// A rank whose program has the state of step 6, published.
fn at_six() -> Rank<Fake> {
    let mut rank = rank();
    ask(&mut rank, attach());
    rank.on_call(EPOCH(), restore(6, 2));
    let told = ask(&mut rank, Ask::Restore);
    assert_eq!(
        told,
        Some(Answer::State {
            step: 6,
            places: vec![place("shard 1")]
        })
    );
    let (step, error) = (6, None);
    assert_eq!(
        ask(&mut rank, Ask::Restored { step, error }),
        Some(Answer::Done)
    );
    ask(&mut rank, version(6));
    ask(&mut rank, published(6));
    rank.on_served(6, Ok(ServedVersion::default()));
    rank.said();
    rank
}

/// The same, after the batch of step 7.
fn at_seven() -> Rank<Fake> {
    let mut rank = at_six();
    rank.on_call(EPOCH(), train(7));
    assert!(matches!(
        ask(&mut rank, Ask::Batch),
        Some(Answer::Batch { step: 7, .. })
    ));
    rank
}

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
