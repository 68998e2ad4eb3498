//! How often a trajectory was handed out and what befell it is decided here, kept while its batch is open, and part
//! of the record of the step that consumes it.
use super::script::{AGENT, Script, t};
use super::*;
use crate::core::{Past, Provenance, SetbackKind};

fn config() -> CoreConfig {
    CoreConfig {
        rollouts: 1,
        agents: 1,
        ranks: 1,
        responses: 2,
        ..small(Mode::Sync, 3)
    }
}

const BATCH: [TrajectoryId; 4] = [t(1, 0, 0), t(1, 0, 1), t(1, 1, 0), t(1, 1, 1)];

fn give_back(s: &mut Script, trajectory: TrajectoryId, by: ReturnedBy, reason: &str) {
    let incarnation = s.life(AGENT);
    s.feed(Input::Role(
        incarnation,
        RoleEvent::TrajectoryReturned {
            trajectory,
            reason: reason.to_owned(),
            by,
            lease: 0,
        },
    ));
}

fn wait(s: &mut Script, seconds: u64) {
    s.now = s.now + Duration::from_secs(seconds);
    s.feed(Input::Timeout);
}

fn commit(s: &mut Script) -> (Vec<TrajectoryId>, Provenance) {
    let generation = s.core.s.gang.generation();
    let (step, metrics) = (Step(1), StepMetrics::default());
    s.feed(Input::Gang(
        generation,
        GangEvent::StepDone { step, metrics },
    ));
    let committed = s.records().into_iter().find_map(|r| match r {
        Record::Committed {
            trajectories,
            provenance,
            ..
        } => Some((trajectories.clone(), provenance.clone().unwrap())),
        _ => None,
    });
    committed.unwrap()
}

fn kinds(past: &Past) -> Vec<(Option<u32>, SetbackKind)> {
    past.setbacks()
        .iter()
        .map(|s| (s.attempt, s.kind))
        .collect()
}

#[test]
fn the_record_of_a_step_says_of_each_trajectory_how_it_came_there() {
    let mut s = Script::new(config());
    let first = s.life(AGENT);
    give_back(&mut s, BATCH[1], ReturnedBy::Worker, "its tool was killed");
    wait(&mut s, 1);
    give_back(
        &mut s,
        BATCH[2],
        ReturnedBy::Diverged,
        "it went another way",
    );
    wait(&mut s, 1);
    s.finish(BATCH[0]);
    // The worker dies with three of them.
    s.exits(AGENT, Exit::Signal(9), "");
    wait(&mut s, 10);
    let second = s.life(AGENT);
    assert_ne!(first, second);
    // A daemon that starts anew has it on record.
    s.restart_daemon(&[]);
    let leases: Vec<u64> = BATCH.iter().map(|id| s.core.lease_of(*id)).collect();
    BATCH[1..].iter().for_each(|id| s.finish(*id));
    let (trajectories, provenance) = commit(&mut s);
    assert_eq!(trajectories, BATCH);
    assert_eq!(provenance.leases, leases);
    let befell: Vec<_> = provenance
        .befell
        .iter()
        .map(|(id, past)| (*id, kinds(past)))
        .collect();
    let gone = |attempt| (Some(attempt), SetbackKind::AgentGone);
    let expected = [
        (BATCH[1], vec![(Some(1), SetbackKind::GivenBack), gone(2)]),
        (BATCH[2], vec![(Some(1), SetbackKind::Diverged), gone(2)]),
        (BATCH[3], vec![gone(1)]),
    ];
    assert_eq!(befell, expected);
    let past = &provenance.befell[0].1;
    assert_eq!((past.attempts(), past.holder()), (Some(3), Some(AGENT)));
    let given_back = &past.setbacks()[0];
    assert_eq!(given_back.why, "its tool was killed");
    assert_eq!(
        (given_back.holder, given_back.incarnation),
        (Some(AGENT), first)
    );
    assert_eq!(past.attempt_of(leases[1], leases[1]), Some(3));
    assert_eq!(past.attempt_of(given_back.lease, leases[1]), Some(1));
}

#[test]
fn what_a_restart_of_everything_throws_away_says_so_and_what_was_not_begun_has_no_setback() {
    let mut s = Script::new(CoreConfig {
        policy: Policy::Task,
        agent_concurrency: 2,
        ..config()
    });
    s.finish(BATCH[0]);
    s.exits(AGENT, Exit::Signal(9), "");
    let past = |id| s.core.trajectory(id).unwrap().past.clone();
    let lost = (Some(1), SetbackKind::TaskRestart);
    assert_eq!(kinds(&past(BATCH[0])), [lost]);
    assert!(
        kinds(&past(BATCH[1])).contains(&lost),
        "{:?}",
        past(BATCH[1])
    );
    assert!(
        past(BATCH[1])
            .setbacks()
            .iter()
            .any(|s| s.kind.throws_away())
    );
    assert_eq!(past(BATCH[3]).setbacks(), []);
}

#[test]
fn a_trajectory_that_a_former_build_had_under_way_has_no_count_that_nobody_made() {
    let mut s = Script::new(config());
    give_back(&mut s, BATCH[1], ReturnedBy::Worker, "no tool");
    wait(&mut s, 1);
    // As a build before this one writes it.
    let mut state = serde_json::to_value(s.core.state()).unwrap();
    let all = state.pointer_mut("/trajectories/all").unwrap();
    for pair in all.as_array_mut().unwrap() {
        pair[1].as_object_mut().unwrap().remove("past").unwrap();
    }
    let config = s.core.config().clone();
    s.core = Core::restore(config, serde_json::from_value(state).unwrap());
    assert_eq!(s.core.trajectory(BATCH[1]).unwrap().past.attempts(), None);
    s.feed(Input::Start);
    let incarnation = s.life(AGENT);
    let hello = Hello {
        leases: BATCH.to_vec(),
        ..Hello::default()
    };
    s.feed(Input::Role(incarnation, RoleEvent::Attached { hello }));
    give_back(&mut s, BATCH[1], ReturnedBy::Worker, "no tool");
    let past = &s.core.trajectory(BATCH[1]).unwrap().past;
    assert_eq!(kinds(past), [(None, SetbackKind::GivenBack)]);
    assert_eq!(past.attempt_of(past.setbacks()[0].lease, 0), None);
}

#[test]
fn figures_of_a_former_build_are_read_and_what_it_did_not_keep_is_not_said() {
    let mut value = serde_json::to_value(StepMetrics::default()).unwrap();
    value.as_object_mut().unwrap().remove("health").unwrap();
    let read: StepMetrics = serde_json::from_value(value).unwrap();
    assert_eq!(read.health, crate::core::Health::default());
    assert_eq!(read.health.entropy, None);
}

#[test]
fn a_record_of_a_former_build_is_read_and_says_nothing_of_it() {
    let record = Record::Committed {
        step: Step(1),
        generation: Generation(1),
        trajectories: BATCH.to_vec(),
        metrics: StepMetrics::default(),
        provenance: Some(Provenance::default()),
    };
    let mut value = serde_json::to_value(&record).unwrap();
    value["Committed"]
        .as_object_mut()
        .unwrap()
        .remove("provenance")
        .unwrap();
    let read: Record = serde_json::from_value(value).unwrap();
    assert!(
        matches!(
            read,
            Record::Committed {
                provenance: None,
                ..
            }
        ),
        "{read:?}"
    );
}
