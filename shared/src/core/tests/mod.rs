//! The controller alone, told by hand what happens. Whole jobs are played in `robust-sim` (`tests/virtual_time`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod causes;
mod exits;
mod given_back;
mod node_faults;
mod own_loop;
mod paused;
mod poison;
mod probed;
mod provenance;
mod pulls;
mod reports;
mod script;
mod table;
mod too_old;
mod waited_for;

use super::*;
use crate::ids::*;
use inspect::{quick_rules, small};
use std::time::Duration;

/// Of every request of an operator.
const TICKET: Ticket = 3;

const fn id(role: Role, index: u32) -> InstanceId {
    InstanceId { role, index }
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const T0: InstanceId = InstanceId {
    role: Role::Trainer,
    index: 0,
};

/// Design section 9: a database that is lost costs what came after the newest checkpoint, no more.
#[test]
fn a_job_of_which_a_checkpoint_is_left_goes_on_after_it_with_numbers_of_its_own() {
    const T: Time = Time(1_000);
    let config = small(Mode::Sync, 6);
    let state = State::at_checkpoint(&config, Step(4), Generation(3), Incarnation(9));
    let mut core = Core::restore(config.clone(), state);
    core.handle(T, Input::Start);
    let outputs: Vec<Output> = std::iter::from_fn(|| core.poll_output()).collect();
    let spawned = outputs.iter().filter_map(|o| match o {
        Output::Spawn {
            incarnation,
            generation,
            id,
            ..
        } => Some((*incarnation, *generation, id.role)),
        _ => None,
    });
    for (incarnation, generation, role) in spawned {
        assert!(incarnation > Incarnation(9), "{incarnation} may still run");
        let expected = if role == Role::Trainer { 4 } else { 0 };
        assert_eq!(
            generation,
            Generation(expected),
            "I-1: after the one that is gone"
        );
    }
    assert_eq!(core.view(T).step, Step(4));
    let version = core.view(T).version;
    assert_eq!(version, Some(WeightVersion(4)), "it does not go back (I-4)");
    assert_eq!(core.batch_prompts(4), None, "it is consumed (I-3)");
    assert_eq!(core.batch_prompts(5), Some(config.prompts));
}

/// No interval of the ledger ends with a job that is stopped in the instant of its last turn.
#[test]
fn the_end_of_a_job_is_on_record_before_anybody_acts_on_it() {
    let now = Time(1_000_000_000);
    let mut core = Core::new(small(Mode::Async, 6));
    core.handle(now, Input::Start);
    while core.poll_output().is_some() {}
    core.handle(now, Input::Stop);
    let outputs: Vec<Output> = std::iter::from_fn(|| core.poll_output()).collect();
    let at = |what: fn(&Output) -> bool| outputs.iter().position(what);
    let record = at(|o| matches!(o, Output::Record(_)));
    let end = at(|o| matches!(o, Output::Finish { .. }));
    assert!(record.is_some() && record < end, "{outputs:?}");
}

#[test]
fn requests_about_nobody_are_refused_with_a_reason() {
    let mut core = Core::new(small(Mode::Async, 1));
    let inject = |index| {
        let (fault, role) = (Fault::Kill, Role::Rollout);
        Input::Operator(
            TICKET,
            Request::Inject {
                fault,
                role,
                index: Some(index),
                incarnation: None,
                at: None,
            },
        )
    };
    let reply = |core: &mut Core| {
        let found = std::iter::from_fn(|| core.poll_output())
            .find_map(|o| match o {
                Output::Reply { result, .. } => Some(result),
                _ => None,
            })
            .unwrap();
        found.unwrap_err().to_string()
    };
    core.handle(Time(1), inject(0));
    assert_eq!(
        reply(&mut core),
        "the job is not started; nothing can be asked of it; try again when it runs"
    );
    core.handle(Time(1), Input::Start);
    core.handle(Time(1), inject(9));
    assert_eq!(
        reply(&mut core),
        "there is no rollout 9; the job has 3 (0 to 2)"
    );
    core.handle(Time(1), inject(1));
    assert_eq!(
        reply(&mut core),
        "rollout-1 is not running (starting); try again when it is"
    );
}

#[test]
fn spawns_follow_the_record_of_their_numbers() {
    let mut core = Core::new(small(Mode::Async, 1));
    core.handle(Time(1), Input::Start);
    let mut issued = Vec::new();
    while let Some(output) = core.poll_output() {
        match output {
            Output::Record(Record::Issued { incarnation, .. }) => issued.push(incarnation),
            Output::Spawn { incarnation, .. } => assert!(issued.contains(&incarnation)),
            _ => {}
        }
    }
    assert_eq!(issued.len(), 7);
}

#[test]
fn a_programs_every_slot_counts_in_the_ettr() {
    let core = Core::new(CoreConfig {
        rank_slots: 2,
        rollout_slots: 4,
        ..small(Mode::Async, 1000)
    });
    let now = core.moment();
    assert_eq!((now.trainer_slots, now.rollout_slots), (4, 12));
    assert_eq!(core.s.trainer_share(&core.config), 0.25);
    let recovers = worth::Moment {
        trainer_recovers: true,
        rollout_generates: true,
        hybrid_slots_generate: 0,
        ..now
    };
    assert_eq!(recovers.worth().0, 0.75, "R / (R + T)");
}
