//! One cause again and again: counted by what was said, ended by work, and escalated to a clear end.
use super::script::{AGENT, Script, t};
use super::*;

const ENGINE: InstanceId = InstanceId {
    role: Role::Rollout,
    index: 0,
};

/// No other budget speaks before that of one cause does.
fn patient() -> CoreConfig {
    CoreConfig {
        rollouts: 2,
        agents: 1,
        ranks: 2,
        budgets: Budgets {
            general: Budget {
                max: 100,
                ..Budget::default()
            },
            ..Budgets::default()
        },
        max_task_restarts: 100,
        ..small(Mode::Sync, 5)
    }
}

/// Ends so, with another number each time.
fn dies(s: &mut Script, who: InstanceId, of: &str) {
    let words = format!("error: {of} at 0x{:x}", s.now.0);
    s.exits(who, Exit::Code(1), &words);
    s.now = s.now + Duration::from_secs(60);
    s.feed(Input::Timeout);
}

/// The deaths so far; whoever does nothing for so long while others die may be found by another rule.
fn deaths(s: &Script) -> Vec<Incident> {
    let mut all = s.incidents();
    all.retain(|i| i.rule == "exit");
    all
}

fn costs(s: &Script) -> Vec<&'static str> {
    let all = deaths(s);
    let cost = |i: &Incident| match &i.plan {
        plan if plan.starts_with("restart the whole task") => "task",
        plan if plan.starts_with("fail the job") => "end",
        _ => "role",
    };
    all.iter().map(cost).collect()
}

fn counts(s: &Script) -> Vec<Option<u32>> {
    let all = deaths(s);
    all.iter()
        .map(|i| i.cause.as_ref().map(|cause| cause.count))
        .collect()
}

#[test]
fn the_same_again_restarts_the_task_and_once_more_ends_the_job_with_the_words() {
    for who in [ENGINE, AGENT] {
        let mut s = Script::new(patient());
        for _ in 0..4 {
            assert_eq!(s.core.state().outcome(), None);
            dies(&mut s, who, "no tensor `lm_head`");
        }
        assert_eq!(costs(&s), ["role", "role", "task", "end"], "{who}");
        assert_eq!(counts(&s), [1, 2, 3, 4].map(Some));
        let outcome = s.core.state().outcome();
        let Some(Outcome::Failed { reason }) = outcome else {
            panic!("{outcome:?}");
        };
        let says = "this will not heal: exit code 1: no tensor `lm_head` at 0x";
        assert!(reason.starts_with(says), "{reason}");
        let whom = format!("; {who} failed of it 4 times in a row");
        assert!(reason.contains(&whom), "{reason}");
    }
}

#[test]
fn two_causes_in_turns_have_a_count_each() {
    let mut s = Script::new(patient());
    for of in ["no room", "no key", "no room", "no key"] {
        dies(&mut s, ENGINE, of);
    }
    assert_eq!(costs(&s), ["role"; 4]);
    assert_eq!(counts(&s), [1, 1, 2, 2].map(Some));
    dies(&mut s, ENGINE, "no key");
    assert_eq!(costs(&s).last(), Some(&"task"));
}

#[test]
fn another_place_that_dies_of_the_same_counts_for_itself() {
    let mut s = Script::new(patient());
    for index in [0, 1, 0, 1] {
        let who = InstanceId { index, ..ENGINE };
        dies(&mut s, who, "no room");
    }
    assert_eq!(counts(&s), [1, 1, 2, 2].map(Some));
}

#[test]
fn of_ranks_it_is_the_gang_that_dies() {
    let mut s = Script::new(patient());
    for index in [0, 1, 0, 1] {
        let who = InstanceId {
            role: Role::Trainer,
            index,
        };
        dies(&mut s, who, "no room");
    }
    assert_eq!(counts(&s), [1, 2, 3, 4].map(Some));
    assert_eq!(costs(&s).last(), Some(&"end"));
}

#[test]
fn useful_work_ends_the_row_of_whoever_did_it() {
    let mut s = Script::new(patient());
    for tokens in 1..4 {
        dies(&mut s, ENGINE, "no room");
        dies(&mut s, ENGINE, "no room");
        let sample = Sample {
            tokens_total: tokens,
            ..Sample::default()
        };
        let life = s.life(ENGINE);
        s.feed(Input::Role(life, RoleEvent::Sampled { sample }));
    }
    assert_eq!(costs(&s), ["role"; 6]);
    for group in 0..2 {
        dies(&mut s, AGENT, "no room");
        dies(&mut s, AGENT, "no room");
        s.finish(t(1, group, 0));
    }
    assert_eq!(costs(&s), ["role"; 10]);
}

#[test]
fn a_row_outlives_the_daemon() {
    let mut s = Script::new(patient());
    dies(&mut s, ENGINE, "no room");
    dies(&mut s, ENGINE, "no room");
    s.restart_daemon(&[]);
    dies(&mut s, ENGINE, "no room");
    assert_eq!(counts(&s), [1, 2, 3].map(Some));
    assert_eq!(costs(&s), ["role", "role", "task"]);
}

#[test]
fn whatever_kills_from_outside_may_do_so_for_ever() {
    let mut s = Script::new(patient());
    for _ in 0..10 {
        s.exits(ENGINE, Exit::Signal(9), "error: no room");
        s.now = s.now + Duration::from_secs(60);
        s.feed(Input::Timeout);
    }
    assert_eq!(counts(&s), [None; 10]);
    assert_eq!(costs(&s), ["role"; 10]);
}
