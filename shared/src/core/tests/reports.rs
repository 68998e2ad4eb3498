//! Corruption and stragglers: what is reported against whom, and how often before anything is said.
use super::script::Script;
use super::*;
use crate::core::weights::{Pull, Supply};
use crate::phase::Phase;

/// A job whose rollouts all serve, and of which nobody answers any more what is asked of it.
fn serving() -> Script {
    let mut s = Script::new(small(Mode::Async, 6));
    s.mute = true;
    s
}

fn only_incident(s: &Script) -> Incident {
    let mut incidents = s.incidents();
    assert_eq!(incidents.len(), 1, "{incidents:#?}");
    let incident = incidents.remove(0);
    assert_eq!(incident.rule, "corruption");
    incident
}

/// A pull under way, reported as corrupt.
fn corrupt(s: &mut Script, puller: InstanceId, source: InstanceId) {
    let (id, puller, source) = (puller, s.life(puller), s.life(source));
    let version = s.core.s.weights.published().unwrap();
    let pull = Pull {
        version,
        order: 0,
        sources: vec![source],
        from_trainer: false,
        since: s.now,
        moved_at: s.now,
        supply: Supply::Whole,
    };
    let (weights, cx) = s.core.weights();
    weights.pretend(&cx, id, pull);
    s.feed(Input::Role(
        puller,
        RoleEvent::Pulled {
            version,
            order: 0,
            result: Err(PullFailure::Corrupt { source }),
        },
    ));
}

#[test]
fn a_source_is_quarantined_when_its_chunks_are_corrupt_for_the_second_time() {
    let mut s = serving();
    let rollout = |n| id(Role::Rollout, n);
    corrupt(&mut s, rollout(0), rollout(2));
    assert!(s.incidents().is_empty(), "once may be the path's fault");
    corrupt(&mut s, rollout(1), rollout(2));
    let incident = only_incident(&s);
    assert_eq!(incident.who, rollout(2));
    assert!(
        incident.reason.contains("2 pulls from it"),
        "{}",
        incident.reason
    );
    assert!(!s.core.s.weights.of(rollout(2)).is_admitted());
}

#[test]
fn a_puller_that_finds_everybody_corrupt_is_the_broken_one() {
    let mut s = serving();
    let rollout = |n| id(Role::Rollout, n);
    corrupt(&mut s, rollout(0), rollout(1));
    corrupt(&mut s, rollout(0), rollout(2));
    assert_eq!(only_incident(&s).who, rollout(0));
}

/// Lets a rank take this long for its logprobs in one step, its peer a second.
fn logprobs_take(s: &mut Script, slow: Duration) {
    let now = s.core.now;
    for (index, took) in [(0, Duration::from_secs(1)), (1, slow)] {
        let incarnation = s.life(id(Role::Trainer, index));
        for (at, phase) in [(now, Phase::OldLogprob), (now + took, Phase::Update)] {
            let i = s.core.s.roster.life_mut(incarnation).unwrap();
            i.enter(phase, Step(1), at);
        }
    }
    let (roster, mut cx) = s.core.roster();
    crate::core::detect::straggler::compare(&mut cx, roster, Step(1));
}

#[test]
fn a_rank_slower_than_its_gang_for_three_steps_in_a_row_is_named_once() {
    let quick = Duration::from_millis(1400);
    let slow = Duration::from_millis(1600);
    let named = |steps: &[Duration]| {
        let mut s = serving();
        steps.iter().for_each(|took| logprobs_take(&mut s, *took));
        let out = std::iter::from_fn(|| s.core.poll_output());
        out.filter_map(|o| match o {
            Output::Event(e) if e.kind == "straggler" => Some(e.text),
            _ => None,
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(
        named(&[slow, slow, slow, slow]),
        [
            "trainer-1 is a straggler: 1.6 s of its own work in step 1 where the gang's median is 1 s, \
          for 3 steps in a row"
        ]
    );
    assert!(named(&[slow, slow, quick, slow, slow]).is_empty());
}
