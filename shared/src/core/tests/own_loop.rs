//! Trainers whose loop is their own.
use super::inspect::{KEPT, OWN_STATE, SILENT, own_loop as config};
use super::script::Script;
use super::*;

fn commits(s: &mut Script, step: u64) {
    s.feed(Input::Gang(
        s.core.s.gang.generation(),
        GangEvent::StepDone {
            step: Step(step),
            metrics: StepMetrics::default(),
        },
    ));
}

/// How often each version was asked for, in order, over a kill of a rank at step 2.
fn published(own: OwnLoop) -> Vec<u64> {
    let mut s = Script::new(CoreConfig {
        ranks: 1,
        ..config(own)
    });
    commits(&mut s, 1);
    commits(&mut s, 2);
    s.exits(T0, Exit::Signal(9), "");
    commits(&mut s, 3);
    s.published.iter().map(|v| v.0).collect()
}

#[test]
fn a_state_that_is_kept_is_published_again_and_one_that_is_not_is_another_and_never_goes_back() {
    assert_eq!(published(KEPT), [0, 1, 2, 2, 3]);
    assert_eq!(published(OWN_STATE), [0, 1, 2, 3]);
}

#[test]
fn an_older_gang_that_says_it_is_over_ends_nothing() {
    let mut s = Script::new(config(SILENT));
    let before = s.core.s.gang.generation();
    s.exits(T0, Exit::Signal(9), "");
    s.feed(Input::Gang(before, GangEvent::TrainerOver));
    assert!(s.core.is_running());
}

#[test]
fn a_trainer_that_tells_no_steps_cannot_be_paused() {
    let mut s = Script::new(config(SILENT));
    s.feed(Input::Operator(TICKET, Request::Pause));
    assert_eq!(s.core.pause(), None);
}

/// How many lives it takes that each do one step and die before the job gives up; none: it never does.
fn lives_of_one_step(own: OwnLoop) -> Option<u64> {
    let mut s = Script::new(CoreConfig {
        ranks: 1,
        ..config(own)
    });
    (1..200).find(|life| {
        commits(&mut s, *life);
        s.exits(T0, Exit::Signal(9), "");
        s.now = s.now + Duration::from_secs(5);
        s.feed(Input::Timeout);
        !s.core.is_running()
    })
}

#[test]
fn a_first_step_is_no_progress_where_the_program_may_have_done_it_before() {
    assert_eq!(lives_of_one_step(KEPT), None);
    assert!(lives_of_one_step(OWN_STATE).is_some());
}

/// How many lives of so many seconds each it takes before the job gives up; none: it never does.
fn silent_lives_of(seconds: u64) -> Option<u64> {
    let mut s = Script::new(CoreConfig {
        ranks: 1,
        ..config(SILENT)
    });
    (1..60).find(|_| {
        s.now = s.now + Duration::from_secs(seconds);
        s.exits(T0, Exit::Signal(9), "");
        s.now = s.now + Duration::from_secs(5);
        s.feed(Input::Timeout);
        !s.core.is_running()
    })
}

#[test]
fn a_silent_program_that_ran_for_the_budgets_window_did_useful_work() {
    // Three restarts of the gang, three of the task, and the next one is too many.
    assert_eq!(silent_lives_of(10), Some(7));
    assert_eq!(silent_lives_of(601), None);
}
