//! Trainers whose loop is their own.
use super::*;
use robust_shared::core::inspect::{KEPT, OWN_STATE, SILENT, own_loop as config};

#[test]
fn the_job_is_completed_when_the_programs_end_after_as_many_steps_as_they_took() {
    for own in [KEPT, OWN_STATE] {
        let mut w = World::new(config(own), 1);
        w.run_to_end();
        assert_eq!(w.outcome, Some(Outcome::Completed));
        assert_eq!(w.committed(), w.program_ends);
        assert!(w.incidents().is_empty());
        assert!(w.trained.iter().all(|(_, _, batch)| batch.is_empty()));
    }
}

#[test]
fn a_program_that_says_nothing_is_restarted_as_a_gang_and_its_end_is_the_jobs() {
    let mut w = World::new(config(SILENT), 1);
    let begun = |w: &World| !w.trained.is_empty();
    w.until("the program runs", Duration::from_secs(60), begun);
    w.timing.update = Span::between(ms(2000), ms(2000));
    let later = w.now + ms(100);
    w.until("it trained a while", Duration::from_secs(5), |w| {
        w.now > later
    });
    assert_eq!(w.core.view(w.now).state, JobState::Running);
    w.kill(T0);
    w.run_to_end();
    assert_eq!(
        (w.outcome.clone(), w.committed()),
        (Some(Outcome::Completed), 0)
    );
    assert_eq!(w.incidents().len(), 1);
    let view = w.core.view(w.now);
    let ettr = &view.ettr;
    assert!(ettr.total > 0.1 && ettr.goodput == ettr.total, "{ettr:?}");
}

#[test]
fn steps_that_the_job_file_bounds_end_it_while_the_programs_would_go_on() {
    let mut w = World::new(
        CoreConfig {
            steps: 2,
            ..config(KEPT)
        },
        1,
    );
    w.run_to_end();
    assert_eq!(
        (w.outcome.clone(), w.committed()),
        (Some(Outcome::Completed), 2)
    );
}
