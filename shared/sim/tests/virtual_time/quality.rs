//! Rules about what is trained and how long it takes: numeric, exception, phase overrun.
use super::*;
use robust_shared::phase::Phase;

const LONG: Duration = Duration::from_secs(60);

fn training(mode: Mode) -> (World, Generation, Step) {
    let mut w = World::new(small(mode, 6), 3);
    w.until("training", LONG, |w| {
        w.committed() == 2 && w.instance(T0).phase == Phase::Update
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

fn events(w: &World, kind: &str) -> usize {
    let kind = format!("kind: {kind:?}");
    w.journal
        .lines()
        .iter()
        .filter(|l| l.contains(&kind))
        .count()
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
