//! A candidate, and what the arbiter tells it.
#![allow(clippy::unwrap_used)]
use super::*;
use crate::time::Time;
use proptest::prelude::*;
use std::time::Duration;

fn ms(n: u64) -> Time {
    Time(n * 1000)
}

fn timing() -> Timing {
    Timing::new(Duration::from_secs(2), Duration::from_millis(700))
}

fn leader(name: &str, epoch: u64) -> Leader {
    let name = name.to_owned();
    let lease = i64::try_from(epoch).unwrap() * 10;
    Leader { name, epoch, lease }
}

fn following(now: Time) -> Election {
    let mut election = Election::new("b", timing());
    assert_eq!(
        election.handle(now, Event::Seen(Some(leader("a", 5)))),
        None
    );
    election
}

fn leading(asked: Time) -> Election {
    let mut election = Election::new("b", timing());
    assert_eq!(election.handle(asked, Event::Seen(None)), Some(Act::Ask));
    assert_eq!(election.handle(asked, Event::Won { epoch: 7, asked }), None);
    assert_eq!(election.epoch(), Some(7));
    election
}

#[test]
fn whoever_finds_no_leader_asks_once() {
    let mut election = Election::new("b", timing());
    assert_eq!(election.handle(ms(0), Event::Seen(None)), Some(Act::Ask));
    assert_eq!(election.handle(ms(1), Event::Seen(None)), None);
    assert_eq!(election.handle(ms(2), Event::Lost), None);
    assert_eq!(election.handle(ms(3), Event::Seen(None)), Some(Act::Ask));
    assert_eq!(
        election.handle(ms(4), Event::Seen(Some(leader("a", 5)))),
        None
    );
    assert_eq!(election.leader().unwrap().name, "a");
}

#[test]
fn whoever_lacks_something_asks_once_it_has_it_and_nobody_else_was_first() {
    let mut election = Election::new("b", timing());
    assert_eq!(election.handle(ms(0), Event::Ready(false)), None);
    assert_eq!(election.handle(ms(1), Event::Seen(None)), None);
    assert_eq!(election.handle(ms(2), Event::Seen(None)), None);
    assert_eq!(election.handle(ms(3), Event::Ready(true)), Some(Act::Ask));
    assert_eq!(
        election.handle(ms(4), Event::Ready(true)),
        None,
        "asked twice"
    );
    let mut election = Election::new("b", timing());
    assert_eq!(election.handle(ms(0), Event::Ready(false)), None);
    assert_eq!(election.handle(ms(1), Event::Seen(None)), None);
    let other = Event::Seen(Some(leader("a", 5)));
    assert_eq!(election.handle(ms(2), other), None);
    assert_eq!(election.handle(ms(3), Event::Ready(true)), None);
    assert_eq!(election.leader().unwrap().name, "a");
}

#[test]
fn whoever_lacks_something_takes_no_lease_away() {
    let mut election = following(ms(0));
    assert_eq!(election.handle(ms(0), Event::Ready(false)), None);
    assert_eq!(answered(&mut election, 100, 3000), None);
    assert_eq!(election.handle(ms(3000), Event::Seen(None)), None);
    assert_eq!(
        election.handle(ms(3100), Event::Ready(true)),
        Some(Act::Ask)
    );
}

#[test]
fn a_candidate_that_asked_before_it_lacked_something_still_leads() {
    let mut election = Election::new("b", timing());
    assert_eq!(election.handle(ms(0), Event::Seen(None)), Some(Act::Ask));
    assert_eq!(election.handle(ms(1), Event::Ready(false)), None);
    let won = Event::Won {
        epoch: 7,
        asked: ms(0),
    };
    assert_eq!(election.handle(ms(2), won), None);
    assert_eq!(election.epoch(), Some(7));
}

/// What it does about own signs that are answered at once, one each 100 ms.
fn answered(election: &mut Election, from: u64, to: u64) -> Option<Act> {
    let mut times = (from..to).step_by(100);
    times.find_map(|at| {
        let given = ms(at);
        election.handle(ms(at + 5), Event::Answered { given })
    })
}

#[test]
fn a_silent_leader_loses_its_lease_once_the_arbiter_answered_the_follower_for_as_long() {
    let mut election = following(ms(0));
    assert_eq!(election.handle(ms(500), Event::Sign), None);
    assert_eq!(
        election.handle(ms(1500), Event::Tick),
        None,
        "the arbiter answered nothing since"
    );
    let act = answered(&mut election, 1500, 3000);
    assert!(
        matches!(act, Some(Act::Revoke { lease: 50, .. })),
        "{act:?}"
    );
    assert_eq!(election.handle(ms(1800), Event::Tick), None, "asked twice");
    election.not_revoked();
    assert!(election.handle(ms(1900), Event::Tick).is_some());
    assert_eq!(election.handle(ms(1950), Event::Seen(None)), Some(Act::Ask));
}

#[test]
fn an_arbiter_that_answers_nobody_for_a_while_costs_no_leader_its_lease() {
    let mut election = following(ms(0));
    assert_eq!(answered(&mut election, 0, 600), None);
    // It chooses its own leader, and then answers what had been asked meanwhile, and what is asked next.
    assert_eq!(
        election.handle(ms(3000), Event::Answered { given: ms(700) }),
        None
    );
    assert_eq!(
        election.handle(ms(3100), Event::Answered { given: ms(3050) }),
        None
    );
    assert_eq!(election.handle(ms(3110), Event::Sign), None);
    for now in 0..10 {
        assert_eq!(election.handle(ms(6000 + now * 500), Event::Tick), None);
    }
}

#[test]
fn what_was_answered_before_the_leader_fell_silent_says_nothing_of_after() {
    let mut election = following(ms(0));
    assert_eq!(answered(&mut election, 0, 600), None);
    assert_eq!(election.handle(ms(610), Event::Sign), None);
    assert_eq!(
        election.handle(ms(1400), Event::Answered { given: ms(605) }),
        None
    );
    assert_eq!(election.handle(ms(1500), Event::Tick), None);
}

#[test]
fn a_leader_whose_lease_is_not_lengthened_ends_before_it_is_over() {
    let mut election = leading(ms(1000));
    assert_eq!(
        election.handle(ms(2000), Event::Answered { given: ms(1800) }),
        None
    );
    assert_eq!(election.leads_until(), Some(ms(3000)));
    assert_eq!(election.handle(ms(2900), Event::Tick), None);
    let act = election.handle(ms(3001), Event::Tick);
    assert!(matches!(act, Some(Act::End { .. })), "{act:?}");
    assert_eq!(
        election.handle(ms(3002), Event::Answered { given: ms(3001) }),
        None
    );
    assert_eq!(election.epoch(), None);
}

#[test]
fn an_answer_that_came_too_late_lengthens_nothing_after_the_end() {
    let mut election = leading(ms(0));
    // It slept: the answer was there, and was read only now.
    let act = election.handle(ms(9000), Event::Answered { given: ms(100) });
    assert!(matches!(act, Some(Act::End { .. })), "{act:?}");
    // The grant itself came too late.
    let mut election = Election::new("b", timing());
    election.handle(ms(0), Event::Seen(None));
    let act = election.handle(
        ms(5000),
        Event::Won {
            epoch: 7,
            asked: ms(0),
        },
    );
    assert!(matches!(act, Some(Act::End { .. })), "{act:?}");
}

#[test]
fn a_leader_that_sees_another_one_ends() {
    for seen in [None, Some(leader("a", 9))] {
        let mut election = leading(ms(0));
        assert_eq!(
            election.handle(ms(1), Event::Seen(Some(leader("b", 7)))),
            None
        );
        assert!(matches!(
            election.handle(ms(2), Event::Seen(seen)),
            Some(Act::End { .. })
        ));
    }
    let mut election = leading(ms(0));
    assert!(matches!(
        election.handle(ms(2), Event::LeaseOver),
        Some(Act::End { .. })
    ));
}

#[test]
fn a_new_leader_is_given_its_time_though_the_one_before_was_silent() {
    let mut election = following(ms(0));
    election.handle(ms(600), Event::Answered { given: ms(590) });
    election.handle(ms(690), Event::Answered { given: ms(680) });
    assert_eq!(
        election.handle(ms(695), Event::Seen(Some(leader("c", 6)))),
        None
    );
    assert_eq!(
        election.handle(ms(1200), Event::Answered { given: ms(1190) }),
        None
    );
}

proptest! {
    /// However events come, it leads only by a grant, never longer than its lease allows, and never again after its end.
    #[test]
    fn nobody_leads_without_a_grant_or_beyond_its_lease(
        events in prop::collection::vec((0..400u64, 0..7u8, 0..4u64), 0..60)
    ) {
        let mut election = Election::new("b", timing());
        let (mut now, mut asked, mut held, mut ended) = (0, None, None, false);
        for (wait, kind, n) in events {
            now += wait;
            let event = match kind {
                0 => Event::Seen(None),
                1 => Event::Seen(Some(leader("a", n + 1))),
                2 => Event::Sign,
                3 => Event::Answered { given: ms(now.saturating_sub(n * 300)) },
                4 => match asked {
                    Some(at) => Event::Won { epoch: 99, asked: ms(at) },
                    None => Event::Tick,
                },
                5 => Event::LeaseOver,
                _ => Event::Tick,
            };
            if let Event::Won { asked, .. } = &event {
                held = Some(*asked);
            }
            if let (Event::Answered { given }, Some(held)) = (&event, held.as_mut()) {
                *held = (*held).max(*given);
            }
            let was_won = matches!(event, Event::Won { .. });
            match election.handle(ms(now), event) {
                Some(Act::Ask) => asked = Some(now),
                Some(Act::End { .. }) => ended = true,
                _ => {}
            }
            if was_won {
                asked = None;
            }
            if election.epoch().is_some() {
                prop_assert!(!ended);
                prop_assert!(ms(now) <= held.unwrap() + timing().fence());
            }
        }
    }
}
