//! Who pulls from whom when something fails in the middle.
use super::*;
use crate::core::weights::Supply;

#[test]
fn when_the_middle_of_a_chain_dies_the_next_goes_on_from_the_one_before_it() {
    let mut fleet = Fleet::chain(4);
    fleet.dies(rollout(1));
    assert_eq!(fleet.orders(), ["v0: rollout-2 from rollout-0"]);
    assert_eq!(
        fleet.core.pulls_from(fleet.lives[&rollout(3)]),
        [fleet.lives[&rollout(2)]]
    );
}

#[test]
fn when_the_trainer_dies_its_puller_waits_and_never_pulls_from_one_that_pulls_from_it() {
    let mut fleet = Fleet::chain(3);
    fleet.dies(T0);
    fleet.pass(Duration::from_secs(5));
    assert!(
        fleet.orders().is_empty(),
        "rollout-2 is free, and gets it all from rollout-0"
    );
    assert_eq!(
        fleet.core.pulls_from(fleet.lives[&rollout(2)]).len(),
        1,
        "they wait with it"
    );
    fleet.attach(T0);
    fleet.restore();
    assert!(
        fleet.orders().is_empty(),
        "the new trainer has not published yet"
    );
    fleet.publish();
    assert_eq!(
        fleet.orders(),
        ["v0: rollout-0 from trainer-0"],
        "and keeps its chunks"
    );
}

#[test]
fn a_trainer_that_dies_before_it_published_leaves_nothing_to_pull() {
    let mut fleet = Fleet::new(2, Vec::new());
    fleet.dies(T0);
    fleet.publish();
    fleet.pass(Duration::from_secs(5));
    assert!(fleet.orders().is_empty());
    fleet.attach(T0);
    fleet.restore();
    fleet.publish();
    assert_eq!(fleet.orders(), ["v0: rollout-0 from trainer-0"]);
}

#[test]
fn whoever_reads_along_follows_its_source_to_a_newer_version() {
    let mut fleet = Fleet::chain(3);
    fleet.moves(0, 90);
    fleet.publish_next();
    assert_eq!(fleet.orders(), ["v1: rollout-0 from trainer-0"]);
    fleet.starts(0);
    assert_eq!(fleet.orders(), ["v1: rollout-1 from rollout-0"]);
    fleet.starts(1);
    assert_eq!(fleet.orders(), ["v1: rollout-2 from rollout-1"]);
}

#[test]
fn that_a_superseded_relay_gives_no_more_of_the_older_version_is_not_held_against_it() {
    let mut fleet = Fleet::chain(2);
    fleet.publish_next();
    let source = fleet.lives[&rollout(0)];
    let reason = "refused".to_owned();
    let failed = Err(PullFailure::Source { source, reason });
    fleet.ends_pull_of(WeightVersion(0), 1, failed);
    fleet.orders();
    fleet.starts(0);
    assert_eq!(fleet.orders(), ["v1: rollout-1 from rollout-0"]);
}

#[test]
fn a_version_is_not_pulled_into_the_buffer_from_which_somebody_reads_the_one_before() {
    let mut fleet = Fleet::chain(2);
    fleet.ends(0, Ok(()));
    // It has no link, so it cannot be told to pull the newer version instead.
    let incarnation = fleet.lives[&rollout(1)];
    fleet.feed(Input::Role(incarnation, RoleEvent::Detached));
    fleet.publish_next();
    assert_eq!(
        fleet.orders(),
        ["v1: rollout-0 from trainer-0"],
        "into the other one"
    );
    fleet.starts(0);
    fleet.ends(0, Ok(()));
    fleet.publish_next();
    assert!(fleet.orders().is_empty(), "rollout-1 still reads v0 there");
    fleet.attach(rollout(1));
    let orders = fleet.orders();
    let v2 = ["v2: rollout-1 from trainer-0"];
    assert_eq!(
        orders
            .iter()
            .filter(|o| o.starts_with("v2"))
            .collect::<Vec<_>>(),
        v2
    );
}

#[test]
fn one_that_waits_for_its_source_is_not_blamed_and_its_source_is() {
    let mut fleet = Fleet::chain(3);
    fleet.moves(0, 50);
    fleet.moves(1, 50);
    assert_eq!(
        (fleet.supply(1), fleet.supply(2)),
        (Some(Supply::Waits), Some(Supply::Flows))
    );
    fleet.moves(2, 50);
    fleet.dies(T0);
    fleet.pass(Duration::from_secs(60));
    assert!(
        fleet.orders().is_empty(),
        "a minute without a byte is nobody's fault"
    );
    assert_eq!(fleet.supply(0), None, "its source is gone");

    fleet.attach(T0);
    fleet.restore();
    fleet.publish();
    fleet.orders();
    fleet.moves(0, 90);
    fleet.pass(Duration::from_secs(9));
    assert_eq!(
        fleet.supply(1),
        Some(Supply::Flows),
        "bytes are there for it since"
    );
    assert!(fleet.orders().is_empty());
    fleet.pass(Duration::from_secs(2));
    assert_eq!(
        fleet.orders(),
        [
            "v0: rollout-0 from trainer-0",
            "v0: rollout-1 from rollout-0"
        ],
        "neither fetched any, and nobody else has any: they are told again"
    );
    fleet.pass(Duration::from_secs(8));
    assert!(fleet.orders().is_empty(), "they are given time again");
}

#[test]
fn a_relay_that_has_everything_leaves_its_puller_no_reason_to_wait() {
    let mut fleet = Fleet::chain(2);
    assert_eq!(fleet.supply(1), Some(Supply::Waits));
    fleet.ends(0, Ok(()));
    assert_eq!(fleet.supply(1), Some(Supply::Whole));
}

#[test]
fn one_that_has_everything_and_waits_for_its_requests_frees_its_source_and_is_not_blamed() {
    let mut fleet = Fleet::chain(3);
    fleet.moves(0, 100);
    assert_eq!(
        (fleet.supply(0), fleet.supply(1)),
        (Some(Supply::Spent), Some(Supply::Whole))
    );
    fleet.moves(1, 100);
    fleet.dies(rollout(1));
    assert_eq!(fleet.orders(), ["v0: rollout-2 from rollout-0"]);
    fleet.dies(T0);
    fleet.pass(Duration::from_secs(60));
    assert_eq!(
        fleet.supply(0),
        Some(Supply::Spent),
        "nothing of it comes from the trainer"
    );
    fleet.ends(0, Ok(()));
    assert!(fleet.holder(0).is_admitted());
}

#[test]
fn a_failure_from_before_an_order_was_given_again_does_not_end_it() {
    let mut fleet = Fleet::chain(3);
    fleet.orders();
    let (before, version) = (fleet.number(1), fleet.version());
    // Its report was lost with a link, or with a daemon, and comes after the order did again.
    fleet.attach(rollout(1));
    assert_eq!(fleet.orders(), ["v0: rollout-1 from rollout-0"]);
    assert!(fleet.number(1) > before);
    let source = fleet.lives[&rollout(0)];
    let reason = "refused".to_owned();
    let failures = [
        PullFailure::Source {
            source,
            reason: reason.clone(),
        },
        PullFailure::Corrupt { source },
        PullFailure::Own { reason },
    ];
    for failure in &failures {
        fleet.answers((version, before), 1, Err(failure.clone()));
        assert!(fleet.orders().is_empty(), "{failure:?}");
        assert_eq!(fleet.sources(1), [source], "{failure:?}");
    }
    fleet.ends(1, Err(failures[0].clone()));
    assert!(fleet.sources(1).is_empty(), "its pull is off");
}

#[test]
fn nobody_reads_along_with_what_was_begun_for_an_order_of_before() {
    let mut fleet = Fleet::publishing(2);
    fleet.orders();
    let (version, order) = (fleet.version(), fleet.number(0));
    fleet.attach(rollout(0));
    assert_eq!(fleet.orders(), ["v0: rollout-0 from trainer-0"]);
    let late = RoleEvent::PullStarted { version, order };
    fleet.feed(Input::Role(fleet.lives[&rollout(0)], late));
    assert!(fleet.orders().is_empty());
    fleet.starts(0);
    assert_eq!(fleet.orders(), ["v0: rollout-1 from rollout-0"]);
}

#[test]
fn a_role_of_an_earlier_build_answers_the_order_that_it_has() {
    let mut fleet = Fleet::chain(3);
    let source = fleet.lives[&rollout(0)];
    fleet.attach(rollout(1));
    assert_eq!(fleet.sources(1), [source]);
    let reason = "refused".to_owned();
    let failed = Err(PullFailure::Source { source, reason });
    fleet.answers((fleet.version(), 0), 1, failed);
    assert!(fleet.sources(1).is_empty(), "its pull is off");
}

#[test]
fn that_a_version_is_there_counts_whichever_order_it_answers() {
    let mut fleet = Fleet::chain(2);
    let before = fleet.number(1);
    fleet.attach(rollout(1));
    fleet.answers((fleet.version(), before), 1, Ok(()));
    assert!(fleet.holder(1).is_admitted());
}

#[test]
fn one_that_has_everything_changes_over_before_it_is_told_to_pull_a_newer_version() {
    let mut fleet = Fleet::chain(1);
    fleet.moves(0, 100);
    for _ in 0..3 {
        fleet.publish_next();
        fleet.pass(Duration::from_secs(1));
        assert!(fleet.orders().is_empty(), "its requests did not end yet");
    }
    let version = WeightVersion(0);
    fleet.ends_pull_of(version, 0, Ok(()));
    let i = fleet.holder(0);
    assert_eq!((i.version(), i.is_admitted()), (Some(version), false));
    assert_eq!(fleet.orders(), ["v3: rollout-0 from trainer-0"]);
}

#[test]
fn a_pull_that_fails_by_itself_is_ordered_again_after_a_rest_and_nobody_is_blamed() {
    let own = || {
        let reason = "no memory".to_owned();
        Err(PullFailure::Own { reason })
    };
    // Nothing is here of it, its source has all, has some; all is here of it.
    for (has, source_has) in [(0, 0), (50, 100), (50, 60), (100, 100)] {
        let mut fleet = Fleet::chain(2);
        fleet.moves(0, source_has);
        fleet.moves(1, has);
        fleet.ends(1, own());
        assert_eq!(fleet.supply(1), None, "its source is free");
        fleet.ends(1, own());
        fleet.pass(Duration::from_millis(1900));
        assert!(fleet.orders().is_empty(), "it rests");
        fleet.pass(Duration::from_millis(200));
        assert_eq!(fleet.orders(), ["v0: rollout-1 from rollout-0"]);
        let source = fleet.core.s.roster.instances().get(rollout(0)).unwrap();
        assert_eq!(source.corrupt_reports(), 0);
        assert!(source.condemned().is_none());
        assert!(fleet.holder(0).avoids_until().is_none());
        fleet.ends(0, Ok(()));
        fleet.ends(1, Ok(()));
        assert!(fleet.holder(1).is_admitted());
    }
}

#[test]
fn an_engine_whose_pulls_fail_by_themselves_again_and_again_is_started_anew() {
    let mut fleet = Fleet::chain(1);
    let first = fleet.lives[&rollout(0)];
    for tries in 1..=5 {
        let reason = "no memory".to_owned();
        fleet.ends(0, Err(PullFailure::Own { reason }));
        // Twice it does it in the end, and that is forgotten.
        if tries == 2 {
            fleet.pass(Duration::from_secs(3));
            fleet.ends(0, Ok(()));
            fleet.publish_next();
        }
        fleet.pass(Duration::from_secs(3));
        let incidents = fleet.core.s.recover.recoveries().len();
        assert_eq!(incidents, usize::from(tries == 5), "after {tries}");
    }
    assert_ne!(fleet.lives[&rollout(0)], first);
}

#[test]
fn a_corrupt_source_is_passed_over_for_a_while_and_the_rest_comes_from_elsewhere() {
    let mut fleet = Fleet::chain(3);
    let source = fleet.lives[&rollout(1)];
    fleet.ends(2, Err(PullFailure::Corrupt { source }));
    assert_eq!(
        fleet.orders(),
        [""; 0],
        "the trainer and rollout-0 serve others"
    );
    fleet.ends(0, Ok(()));
    assert_eq!(fleet.orders(), ["v0: rollout-2 from trainer-0"]);
    let reports = |w: &Fleet| {
        w.core
            .s
            .roster
            .instances()
            .get(rollout(1))
            .unwrap()
            .corrupt_reports()
    };
    assert_eq!(reports(&fleet), 1);
    fleet.ends(2, Err(PullFailure::Corrupt { source }));
    assert_eq!(
        reports(&fleet),
        1,
        "a late word about a source that was replaced"
    );
}

#[test]
fn whoever_pulls_from_one_that_was_taken_out_goes_on_elsewhere_when_it_can() {
    let mut fleet = Fleet::chain(3);
    fleet.ends(0, Ok(()));
    fleet.feed(Input::Operator(
        TICKET,
        Request::Quarantine {
            role: Role::Rollout,
            index: 1,
        },
    ));
    assert!(
        fleet
            .core
            .s
            .roster
            .instances()
            .get(rollout(1))
            .unwrap()
            .quarantined()
    );
    assert!(fleet.orders().is_empty(), "rollout-0 serves rollout-1");
    fleet.ends(1, Ok(()));
    assert_eq!(fleet.orders(), ["v0: rollout-2 from rollout-0"]);
}

#[test]
fn whoever_reads_along_with_one_that_is_to_go_is_served_by_others() {
    let mut fleet = Fleet::chain(4);
    fleet.ends(0, Ok(()));
    fleet.ends(1, Ok(()));
    assert_eq!(
        fleet.core.pulls_from(fleet.lives[&rollout(3)]),
        [fleet.lives[&rollout(2)]]
    );
    // The last ones go first, and rollout-3 stays for this test's sake.
    fleet
        .core
        .s
        .roster
        .get_mut(rollout(2))
        .unwrap()
        .is_to_move(true);
    fleet.feed(Input::Timeout);
    assert_eq!(fleet.orders(), ["v0: rollout-3 from rollout-0"]);
}

#[test]
fn one_that_links_again_is_told_again_and_says_again_that_it_can_be_read() {
    let mut fleet = Fleet::publishing(2);
    fleet.orders();
    let incarnation = fleet.lives[&rollout(0)];
    fleet.feed(Input::Role(incarnation, RoleEvent::Detached));
    fleet.attach(rollout(0));
    assert_eq!(fleet.orders(), ["v0: rollout-0 from trainer-0"]);
    fleet.starts(0);
    assert_eq!(fleet.orders(), ["v0: rollout-1 from rollout-0"]);
}

#[test]
fn after_a_restart_of_the_controller_nobody_is_a_relay_before_it_said_so_again() {
    let mut fleet = Fleet::chain(2);
    let config = fleet.core.config().clone();
    fleet.core = Core::restore(config, fleet.core.state().clone());
    fleet.feed(Input::Start);
    for n in [0, 1] {
        fleet.attach(rollout(n));
    }
    let again = [
        "v0: rollout-0 from trainer-0",
        "v0: rollout-1 from rollout-0",
    ];
    assert_eq!(fleet.orders(), again);
    assert_eq!(fleet.holder(0).readable(), None);
}

#[test]
fn a_pull_whose_source_is_slow_is_no_overrun() {
    let mut fleet = Fleet::new(2, Vec::new());
    fleet.core.config.rules.phase_overrun.bound.set(ms(5000));
    for n in [0, 1] {
        fleet.feed(Input::Role(
            fleet.lives[&rollout(n)],
            RoleEvent::PhaseChanged {
                phase: crate::phase::Phase::PullWeights,
                step: Step(0),
            },
        ));
    }
    fleet.publish();
    fleet.starts(0);
    fleet.pass(Duration::from_secs(8));
    let overrun = |n| {
        fleet
            .core
            .s
            .roster
            .instances()
            .get(rollout(n))
            .unwrap()
            .overrun()
    };
    assert_eq!((overrun(0), overrun(1)), (true, false));
}

#[test]
fn an_engine_that_serves_other_bytes_than_it_verified_is_replaced_at_once() {
    let mut fleet = Fleet::chain(2);
    fleet.ends(0, Ok(()));
    let engine = fleet.lives[&rollout(0)];
    let damaged = |version| {
        let (chunks, total) = (1, 3);
        let version = WeightVersion(version);
        Input::Role(
            engine,
            RoleEvent::Damaged {
                version,
                chunks,
                total,
            },
        )
    };
    fleet.feed(damaged(7));
    assert!(
        fleet.core.s.recover.incidents().iter().next().is_none(),
        "it does not serve those"
    );
    fleet.feed(damaged(0));
    let incident = fleet.core.s.recover.incidents().iter().next().unwrap();
    assert_eq!(
        (incident.rule.as_str(), incident.who),
        ("corruption", rollout(0))
    );
    assert_eq!(
        incident.reason,
        "1 of 3 chunks of v0 that it serves are not what it verified when they came; it is quarantined"
    );
    assert_ne!(fleet.lives[&rollout(0)], engine, "it has a new life");
    fleet.feed(damaged(0));
    assert_eq!(
        fleet.core.s.recover.incidents().iter().count(),
        1,
        "said again of a life that is over"
    );
}

#[test]
fn a_puller_whose_memory_changes_what_came_is_replaced_and_its_source_is_not_blamed() {
    let mut fleet = Fleet::chain(2);
    let reason = "2 of 3 chunks of v0 that it pulled".to_owned();
    fleet.ends(1, Err(PullFailure::Damaged { reason }));
    let incident = fleet.core.s.recover.incidents().iter().next().unwrap();
    assert_eq!(
        (incident.rule.as_str(), incident.who),
        ("corruption", rollout(1))
    );
    assert_eq!(
        fleet
            .core
            .s
            .roster
            .instances()
            .get(rollout(0))
            .unwrap()
            .corrupt_reports(),
        0
    );
}
