//! Rules about what is trained, served and how long it takes: numeric, exception, corruption,
//! straggler, phase overrun.
use super::*;
use crate::phase::Phase;

const LONG: Duration = Duration::from_secs(60);

fn training(mode: Mode) -> (World, Generation, Step) {
    let mut w = World::new(small(mode, 6), 3);
    w.until("training", LONG, |w| {
        w.committed() == 2 && w.core.s.roster.instances().get(T0).unwrap().phase() == Phase::Update
    });
    let (generation, step, _) = w.trained.last().cloned().unwrap();
    (w, generation, step)
}

fn only_incident(w: &World, rule: &str) -> Incident {
    let incidents = w.incidents();
    assert_eq!(incidents.len(), 1, "{incidents:#?}");
    assert_eq!(incidents[0].rule, rule);
    incidents[0].clone()
}

#[test]
fn a_step_with_a_loss_that_is_no_number_is_not_committed_and_trained_again() {
    for (loss, grad_norm, what) in [
        (f64::NAN, 1.0, "NaN as the loss"),
        (0.1, f64::INFINITY, "inf as the gradient's norm"),
    ] {
        let (mut w, generation, step) = training(Mode::Async);
        let metrics = StepMetrics {
            loss,
            grad_norm,
            ..StepMetrics::default()
        };
        w.proc(T0).unwrap().raised = true;
        w.feed(Input::Gang(
            generation,
            GangEvent::StepDone { step, metrics },
        ));
        assert_eq!(w.core.state().committed(), Step(2));
        let incident = only_incident(&w, "numeric");
        assert_eq!(incident.reason, format!("step 3 brought {what}"));
        assert_eq!(
            incident.plan,
            "restart the trainer gang from step 2 and train step 3 again; rollouts and \
             agents go on"
        );
        w.run_to_end();
        assert_eq!(w.committed(), 6);
        only_incident(&w, "numeric");
    }
}

#[test]
fn a_failed_call_names_the_rank_and_its_words_by_the_rule_that_fits() {
    for (fault, rule) in [
        (CallFault::Numeric, "numeric"),
        (CallFault::Exception, "exception"),
    ] {
        let (mut w, generation, step) = training(Mode::Sync);
        w.proc(id(Role::Trainer, 1)).unwrap().raised = true;
        let rank = Some(w.life(id(Role::Trainer, 1)));
        w.feed(Input::Gang(
            generation,
            GangEvent::StepFailed {
                step,
                rank,
                fault,
                reason: "IndexError: 7".to_owned(),
            },
        ));
        let incident = only_incident(&w, rule);
        assert_eq!(incident.who, id(Role::Trainer, 1));
        assert_eq!(incident.reason, "step 3 failed: IndexError: 7");
        w.run_to_end();
        assert_eq!(w.committed(), 6);
    }
}

use crate::core::weights::{Pull, Supply};

/// A pull under way, reported as corrupt.
fn corrupt(w: &mut World, puller: InstanceId, source: InstanceId) {
    let (id, puller, source) = (puller, w.life(puller), w.life(source));
    let version = w.core.s.weights.published().unwrap();
    let pull = Pull {
        version,
        order: 0,
        sources: vec![source],
        from_trainer: false,
        since: w.now,
        moved_at: w.now,
        supply: Supply::Whole,
    };
    let (weights, cx) = w.core.weights();
    weights.pretend(&cx, id, pull);
    w.feed(Input::Role(
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
    let (mut w, ..) = training(Mode::Async);
    let rollout = |n| id(Role::Rollout, n);
    corrupt(&mut w, rollout(0), rollout(2));
    assert!(w.incidents().is_empty(), "once may be the path's fault");
    corrupt(&mut w, rollout(1), rollout(2));
    let incident = only_incident(&w, "corruption");
    assert_eq!(incident.who, rollout(2));
    assert!(
        incident.reason.contains("2 pulls from it"),
        "{}",
        incident.reason
    );
    assert!(!w.core.s.weights.of(rollout(2)).is_admitted());
}

#[test]
fn a_puller_that_finds_everybody_corrupt_is_the_broken_one() {
    let (mut w, ..) = training(Mode::Async);
    let rollout = |n| id(Role::Rollout, n);
    corrupt(&mut w, rollout(0), rollout(1));
    corrupt(&mut w, rollout(0), rollout(2));
    assert_eq!(only_incident(&w, "corruption").who, rollout(0));
}

fn events(w: &World, kind: &str) -> usize {
    let kind = format!("kind: {kind:?}");
    w.journal
        .lines()
        .iter()
        .filter(|l| l.contains(&kind))
        .count()
}

/// Lets a rank take this long for its logprobs in one step, its peer a second.
fn logprobs_take(w: &mut World, slow: Duration) {
    let now = w.core.now;
    for (index, took) in [(0, Duration::from_secs(1)), (1, slow)] {
        let incarnation = w.life(id(Role::Trainer, index));
        for (at, phase) in [(now, Phase::OldLogprob), (now + took, Phase::Update)] {
            let i = w.core.s.roster.life_mut(incarnation).unwrap();
            i.enter(phase, Step(1), at);
        }
    }
    let (roster, mut cx) = w.core.roster();
    crate::core::detect::straggler::compare(&mut cx, roster, Step(1));
}

#[test]
fn a_rank_slower_than_its_gang_for_three_steps_in_a_row_is_named_once() {
    let quick = Duration::from_millis(1400);
    let slow = Duration::from_millis(1600);
    let named = |steps: &[Duration]| {
        let (mut w, ..) = training(Mode::Async);
        steps.iter().for_each(|took| logprobs_take(&mut w, *took));
        let out = std::iter::from_fn(|| w.core.poll_output());
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

#[test]
fn a_phase_far_longer_than_ever_before_is_an_event_and_no_fault() {
    let mut config = small(Mode::Async, 60);
    config.rules.phase_overrun.samples.set(10);
    let mut w = World::journaled(config, Timing::default(), 1);
    w.until("thirty steps", LONG * 5, |w| w.committed() == 30);
    assert_eq!(events(&w, "overrun"), 0);
    w.timing.advantage = Span::always(Duration::from_secs(2400));
    w.until("31 steps", LONG * 60, |w| w.committed() == 31);
    // Both ranks, each once; and the rollouts wait for nobody.
    assert_eq!(events(&w, "overrun"), 2);
    assert!(w.incidents().is_empty());
}

#[test]
fn a_phase_that_a_job_file_bounds_is_said_at_its_bound() {
    let mut config = small(Mode::Async, 3);
    config.rules.phase_overrun.bound.set(ms(30_000));
    let mut w = World::journaled(config, Timing::default(), 1);
    w.timing.advantage = Span::always(Duration::from_secs(40));
    w.until("a step", LONG * 5, |w| w.committed() > 0);
    assert_eq!(events(&w, "overrun"), 2);
    let text = "is in advantage for 30.0 s, longer than the bound of 30.0 s";
    assert!(w.journal.lines().iter().any(|l| l.contains(text)));
}
